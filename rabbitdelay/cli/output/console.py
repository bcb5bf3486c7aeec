"""The console for stdout, and tables and JSON printed on it."""

import json

import click
from rich.console import Console, RenderableType

from rabbitdelay.cli.output.closed_pipe import PipeConsole

WIDTH_WITHOUT_TERMINAL = 1_000
"""Width of the output in a pipe, where nothing needs to be truncated."""


def output() -> Console:
    """Return the console for tables, without markup because an id may look like it."""
    console = PipeConsole(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    return console


def print_json(value: object) -> None:
    """Print a value as JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    click.echo(text.encode(errors="replace").decode())  # an id may not be UTF-8


def print_table(rows: RenderableType) -> None:
    """Print a table, or a renderable with one, without trailing blanks."""
    console = output()
    with console.capture() as capture:
        console.print(rows)
    for line in capture.get().splitlines():
        click.echo(line.rstrip(), color=console.is_terminal)
