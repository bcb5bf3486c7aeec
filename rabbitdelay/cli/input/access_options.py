"""Options of `serve` that say who may connect to a gateway."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rabbitdelay.errors import InvalidConfiguration

if TYPE_CHECKING:
    from rabbitdelay.gateway.access.tokens import TokenTable


@dataclass(frozen=True, slots=True)
class Access:
    """Options of `serve` for hosts and access tokens."""

    tokens: "Callable[[], TokenTable] | None" = None
    """Returns the tokens that are accepted now; None if no token is needed."""
    reload: Callable[[], object] | None = None
    """Reads the tokens again; None if that is not possible."""
    insecure: bool = False
    allowed_hosts: tuple[str, ...] = ()


def takes_access_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, and pass what they mean as a function `read_access`.

    The function reads the tokens, and raises InvalidConfiguration if they are wrong.
    """

    @click.option(
        "--tokens",
        "path",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="File of access tokens, as `rabbitdelay token` prints them; read again on SIGHUP.  "
        "[env: RABBITDELAY_HTTP_TOKENS has the lines themselves; default: no token is needed, "
        "and only this machine can connect]",
    )
    @click.option(
        "--insecure", is_flag=True, help="Allow other machines to connect without a token."
    )
    @click.option(
        "--allowed-host",
        "allowed_hosts",
        metavar="NAME",
        multiple=True,
        help="Host name under which clients reach the gateway; * for any. Repeatable. Without "
        "tokens, other names than localhost are refused.",
    )
    @wraps(command)
    def with_access(
        *arguments: Any,  # noqa: ANN401 - passed on
        path: Path | None,
        insecure: bool,
        allowed_hosts: tuple[str, ...],
        **options: Any,  # noqa: ANN401 - passed on
    ) -> None:
        def read_access() -> Access:
            return _read(path, insecure=insecure, allowed_hosts=allowed_hosts)

        command(*arguments, read_access=read_access, **options)

    return with_access


def _read(path: Path | None, *, insecure: bool, allowed_hosts: tuple[str, ...]) -> Access:
    from rabbitdelay.gateway.access.token_file import (  # noqa: PLC0415 - an extra
        ENVIRONMENT_VARIABLE,
        TokenFile,
        tokens_of_environment,
    )

    table = tokens_of_environment()
    if path is not None and table is not None:
        raise InvalidConfiguration(f"give either --tokens or {ENVIRONMENT_VARIABLE}, not both")
    if path is not None:
        file = TokenFile(path)
        return Access(lambda: file.table, file.reload, insecure, allowed_hosts)
    tokens = None if table is None else lambda: table
    return Access(tokens, None, insecure, allowed_hosts)
