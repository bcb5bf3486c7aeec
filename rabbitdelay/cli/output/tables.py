"""Tables, among them the table of topics that several commands print."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from rabbitdelay.core.administration.counts import Statistics, TopicCounts


def table(*columns: str, numbers: tuple[str, ...] = ()) -> Table:
    """Return a table with these columns, with those in `numbers` right-aligned."""
    result = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        result.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return result


def topics_table(counts: Sequence[TopicCounts]) -> Table:
    """Return a table of job counts by topic, with a state column only if a topic is paused."""
    numbers = ("ready", "reserved", "buried", "consumers")
    rows = table("topic", *numbers, numbers=numbers)
    if any(count.paused for count in counts):
        rows.add_column("state")
    for column in rows.columns:
        column.no_wrap = True
    for count in counts:
        rows.add_row(
            Text(count.topic, overflow="ellipsis"),
            _number(count.ready, "missing"),
            _number(count.reserved, "?"),
            _number(count.buried, "missing"),
            _number(count.consumers),
            *([Text("paused", "bold yellow")] if count.paused else []),
        )
    return rows


def pauses_unknown(found: Statistics) -> str:
    """Return the reason that the paused topics are unknown."""
    return f"paused topics are unknown: {found.deletes_error}"


def _number(count: int | None, otherwise: str = "") -> str:
    return otherwise if count is None else f"{count:,}"
