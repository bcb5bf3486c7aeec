"""`rabbitdelay demo`: a shop that closes unpaid orders, live."""

from pathlib import Path

import click

from rabbitdelay.cli.exit_codes import answer_no
from rabbitdelay.cli.output.console import output
from rabbitdelay.demo.demonstration import run_demo
from rabbitdelay.private_broker.machine import signals


@click.command(short_help="Watch delayed jobs arrive on time, on a private RabbitMQ.")
@click.option("--keep", is_flag=True, help="Leave the broker running afterwards.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the broker, which is kept.  [default: a temporary one]",
)
def demo(directory: Path | None, *, keep: bool) -> None:
    """Watch delayed jobs arrive on time, on a private RabbitMQ, in about 30 s.

    Exits with 3 if a job is early, lost or run twice, or runs at a time that was cancelled.
    """
    with signals.interrupting():
        clean = run_demo(output(), directory, keep=keep)
    if not clean:
        answer_no()
