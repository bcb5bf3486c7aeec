"""`rabbitdelay token`: make an access token for the HTTP gateway."""

from collections.abc import Callable
from typing import TypeVar

import click

from rabbitdelay.cli.options import json_option
from rabbitdelay.cli.output.console import print_json
from rabbitdelay.errors import InvalidConfiguration

Value = TypeVar("Value")


@click.command(short_help="Make an access token for the HTTP gateway.")
@click.argument("name")
@click.option(
    "--rights",
    required=True,
    metavar="RIGHTS",
    help="Comma-separated: put (put, replace, delete, response), consume (pop, finish, release, "
    "touch, bury, counts of a topic), admin (list of topics, pause, purge, buried and unrouted "
    "jobs). None includes another.",
)
@click.option(
    "--topics",
    default="*",
    show_default=True,
    metavar="TOPICS",
    help="Comma-separated topics, or beginnings such as order*.",
)
@click.option(
    "--ids",
    metavar="IDS",
    help="Comma-separated ids, or beginnings such as order-*, that the token may delete and "
    "replace although it does not cover every topic.",
)
@click.option("--expires", metavar="DATE", help="Last day, in UTC, on which the token is accepted.")
@json_option
def token(
    name: str, rights: str, topics: str, ids: str | None, expires: str | None, *, as_json: bool
) -> None:
    """Make an access token, and print it with its line for the token file of `serve`.

    NAME says in the access log who has called. The token itself is printed only now: the line has
    its hash. Give the token to the client, and the line to the gateway:

    \b
    rabbitdelay token shop --rights put --topics 'order*' --ids 'order-*'
    rabbitdelay serve --tokens tokens.txt --host 0.0.0.0
    curl -H 'Authorization: Bearer TOKEN' …
    """  # noqa: D301 - click needs the character itself, to keep lines as they are
    from rabbitdelay.gateway.access import rights as read  # noqa: PLC0415 - an extra
    from rabbitdelay.gateway.access import token_file, tokens  # noqa: PLC0415 - an extra

    grant = read.Grant(
        _checked(read.read_rights, rights),
        _checked(read.read_topics, topics),
        read.Patterns() if ids is None else _checked(read.read_ids, ids),
    )
    last_day = None if expires is None else _checked(token_file.read_day, expires)
    checked_name = _checked(token_file.read_name, name)
    text = tokens.new_token()
    stored = tokens.Token(checked_name, grant, tokens.digest_of(text.encode()), last_day)
    line = token_file.line_of(stored)
    if as_json:
        print_json({"token": text, "line": line})
        return
    click.echo(f"Token for the client, which is not shown again:\n{text}\n")
    click.echo(f"Line for the gateway's token file:\n{line}")


def _checked(read: Callable[[str], Value], text: str) -> Value:
    try:
        return read(text)
    except InvalidConfiguration as error:
        raise click.BadParameter(str(error)) from None
