"""Check that `rabbitdelay` accepts a command line, without running it."""

from collections.abc import Iterator, Sequence

import click
import pytest

from rabbitdelay.cli import root


def check(arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse arguments with the real parser, all commands disabled; fail on a usage error."""
    for command in _tree(root):
        monkeypatch.setattr(command, "callback", None)
    try:
        root.main(list(arguments), prog_name="rabbitdelay", standalone_mode=False)
    except click.UsageError as error:
        pytest.fail(f"rabbitdelay {' '.join(arguments)}: {error.format_message()}", pytrace=False)


def _tree(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for member in command.commands.values():
            yield from _tree(member)
