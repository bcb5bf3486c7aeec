"""`rabbitdelay serve`: the HTTP gateway."""

import asyncio
from datetime import timedelta

import click

from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.exit_codes import ExitCode
from rabbitdelay.cli.options import read_duration
from rabbitdelay.cli.output.worker_log import json_log


@click.command(short_help="Serve the HTTP gateway.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8437, show_default=True, help="TCP port."
)
@click.option(
    "--grace",
    type=read_duration,
    metavar="DURATION",
    default="30s",
    show_default=True,
    help="Time that clients have to settle their jobs after SIGTERM or Ctrl-C.",
)
@pass_settings
def serve(settings: Settings, /, host: str, port: int, *, grace: timedelta) -> None:
    """Serve jobs over HTTP until SIGTERM or Ctrl-C."""
    from rabbitdelay.gateway import GatewayApp, GatewaySettings  # noqa: PLC0415 - loads FastAPI
    from rabbitdelay.gateway.server import (  # noqa: PLC0415 - the same
        GatewayServer,
        ServerSettings,
        listen,
    )

    app = GatewayApp(
        settings.url,
        settings=GatewaySettings(grace=grace.total_seconds()),
        namespace=settings.namespace,
        declare=settings.declare,
        queue_type=settings.queue_type,
        stabilise_seconds=settings.stabilise_seconds,
        max_delay=settings.max_delay,
        management_url=settings.management_url,
    )
    where = ServerSettings(host=host, port=port)
    listening = listen(where)
    server = GatewayServer(app, where)
    with json_log(every_job=settings.verbose):
        asyncio.run(server.serve([listening]))
    if server.was_stopped_at_once:
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)
