"""Yes-or-no questions before something is dropped."""

import click

from rabbitdelay.cli.output.text import counted


def agree_to_drop(count: int) -> bool:
    """Ask whether to drop the jobs; raise UsageError if stdin is not interactive."""
    return agree(f"Drop {counted(count, 'job')} for good?", "drop")


def agree(question: str, verb: str) -> bool:
    """Ask a yes-or-no question; raise UsageError if stdin is not interactive."""
    try:
        return click.confirm(question, err=True)
    except RuntimeError as error:  # click's Abort, or a closed stdin
        if isinstance(error.__context__, KeyboardInterrupt):
            raise
        click.echo(err=True)
        text = f"cannot ask for confirmation without input: use --yes to {verb} without asking"
        raise click.UsageError(text) from None
