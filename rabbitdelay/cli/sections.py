"""Group the commands in `--help` into titled sections."""

from collections.abc import Sequence
from typing import Any

import click

from rabbitdelay.cli.exit_codes import ErrorReportingGroup


class SectionedGroup(ErrorReportingGroup):
    """A group that lists its commands under titles, in the order in which they were added."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - passed on
        super().__init__(*arguments, **options)
        self._sections: dict[str, list[str]] = {}

    def add_section(self, title: str, commands: Sequence[click.Command]) -> None:
        """Add commands under a title."""
        self._sections[title] = [command.name or "" for command in commands]
        for command in commands:
            self.add_command(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections with aligned columns."""
        del ctx  # no command is hidden
        width = max(map(len, self.commands))
        room = formatter.width - width - 6
        for title, names in self._sections.items():
            with formatter.section(title):
                rows = [(name, self.commands[name].get_short_help_str(room)) for name in names]
                formatter.write_dl([(f"{name:{width}}", text) for name, text in rows])
