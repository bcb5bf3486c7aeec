"""`rabbitdelay demo`: the order-close story, live."""

from pathlib import Path

import click

from rabbitdelay.cli.exit_codes import answer_no
from rabbitdelay.cli.output import output
from rabbitdelay.demo.run import perform
from rabbitdelay.private_broker import signals


@click.command(short_help="Watch delayed jobs arrive on time, on a private RabbitMQ.")
@click.option("--keep", is_flag=True, help="Leave the broker running at the end.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="The broker's folder, which stays.  [default: a temporary one]",
)
def demo(directory: Path | None, *, keep: bool) -> None:
    """Watch delayed jobs arrive on time, on a private RabbitMQ, in about 30 s.

    Exits with 3 should a job be early, lost or doubled, or run at a time that was called off.
    """
    with signals.interrupting():
        clean = perform(output(), directory, keep=keep)
    if not clean:
        answer_no()
