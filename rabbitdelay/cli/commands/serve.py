"""`rabbitdelay serve`: the HTTP gateway."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.exit_codes import ExitCode
from rabbitdelay.cli.input.access_options import Access, takes_access_options
from rabbitdelay.cli.options import read_duration, read_size
from rabbitdelay.cli.output.gateway_status import reporting, starting
from rabbitdelay.errors import InvalidConfiguration

if TYPE_CHECKING:
    from rabbitdelay.gateway import GatewayApp
    from rabbitdelay.gateway.server import GatewayServer

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(short_help="Serve jobs over HTTP.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8437,
    show_default=True,
    help="TCP port; 0 chooses a free one.",
)
@takes_access_options
@click.option("--tls-cert", type=_file, help="Certificate chain in PEM, to serve HTTPS.")
@click.option("--tls-key", type=_file, help="Private key of the certificate, in PEM.")
@click.option(
    "--max-wait",
    type=read_duration,
    metavar="DURATION",
    default="50s",
    show_default=True,
    help="Longest wait of a pop; keep it below the idle timeout of proxies.",
)
@click.option(
    "--put-timeout",
    type=read_duration,
    metavar="DURATION",
    default="10s",
    show_default=True,
    help="Time that the broker has to confirm a put or a delete.",
)
@click.option(
    "--grace",
    type=read_duration,
    metavar="DURATION",
    default="30s",
    show_default=True,
    help="Time that clients have to settle their jobs after SIGTERM or Ctrl-C.",
)
@click.option(
    "--max-body",
    type=read_size,
    metavar="SIZE",
    default="1MiB",
    show_default=True,
    help="Maximum size of a job's body.",
)
@click.option(
    "--max-request",
    type=read_size,
    metavar="SIZE",
    default="8MiB",
    show_default=True,
    help="Maximum size of a request, which may have many jobs.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(min=1),
    default=4096,
    show_default=True,
    help="Maximum number of connections; more are answered 503.",
)
@click.option(
    "--access-log/--no-access-log",
    default=True,
    help="Whether to log a line of JSON per request, except on a terminal.  [default: "
    "--access-log]",
)
@pass_settings
def serve(
    settings: Settings,
    /,
    *,
    host: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    max_connections: int,
    access_log: bool,
    read_access: Callable[[], Access],
    **limits: Any,  # noqa: ANN401 - the options of the gateway
) -> None:
    """Serve jobs over HTTP, for programs in any language, until SIGTERM or Ctrl-C.

    The API is described at /openapi.json. Jobs that a client has popped are reserved for their ttr,
    and any number of gateways can share a broker. After SIGTERM, clients can settle their jobs for
    the grace period; the other jobs then return to their queues. A second Ctrl-C stops at once.
    Requires the extra `http`: pip install 'rabbitdelay[http]'

    \b
    rabbitdelay serve
    curl localhost:8437/v1/jobs --json '{"topic": "mail", "delay": "30m"}'
    curl localhost:8437/v1/pop --json '{"topics": "mail", "wait": 20}'
    """  # noqa: D301 - click needs the character itself, to keep lines as they are
    with starting():
        _require_extra()
        access = read_access()
        app = _app(settings, access, **limits)
        server = _server(
            app,
            access,
            host=host,
            port=port,
            tls_cert=tls_cert,
            tls_key=tls_key,
            max_connections=max_connections,
        )
    with reporting(settings, server, access_log=access_log):
        server.run_until_stopped()
    if server.was_stopped_at_once:
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def _require_extra() -> None:
    try:
        import rabbitdelay.gateway  # noqa: F401, PLC0415 - an extra
    except InvalidConfiguration as error:
        raise click.ClickException(str(error)) from None


def _app(
    settings: Settings,
    access: Access,
    *,
    max_wait: timedelta,
    put_timeout: timedelta,
    grace: timedelta,
    max_body: int,
    max_request: int,
) -> "GatewayApp":
    from rabbitdelay.gateway import GatewayApp, GatewaySettings  # noqa: PLC0415 - an extra

    return GatewayApp(
        settings.url,
        settings=GatewaySettings(
            max_wait=max_wait.total_seconds(),
            grace=grace.total_seconds(),
            put_timeout=put_timeout.total_seconds(),
            max_body_bytes=max_body,
            max_request_bytes=max_request,
            tokens=access.tokens,
            allowed_hosts=access.allowed_hosts,
        ),
        namespace=settings.namespace,
        declare=settings.declare,
        queue_type=settings.queue_type,
        stabilise_seconds=settings.stabilise_seconds,
        max_delay=settings.max_delay,
        management_url=settings.management_url,
    )


def _server(
    app: "GatewayApp",
    access: Access,
    *,
    host: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    max_connections: int,
) -> "GatewayServer":
    from rabbitdelay.gateway.http.slow_requests import (  # noqa: PLC0415 - an extra
        ConnectionLimits,
    )
    from rabbitdelay.gateway.server import GatewayServer, ServerSettings  # noqa: PLC0415 - an extra

    where = ServerSettings(
        host=host,
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure=access.insecure,
        limits=ConnectionLimits(max_connections=max_connections),
        reload=access.reload,
    )
    return GatewayServer(app, where)
