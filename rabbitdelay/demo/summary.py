"""The summary: a histogram of lateness and the number of violations."""

from collections.abc import Iterator

from rich.text import Text

from rabbitdelay.demo.scoreboard import Bar, Scoreboard

_BAR_WIDTH = 44


def summary(scoreboard: Scoreboard, dropped: int) -> Iterator[Text]:
    """Yield the lines of the final report."""
    yield Text(f"Lateness of the {scoreboard.arrivals} arrivals", "bold")
    bars = scoreboard.histogram()
    most = max((bar.count for bar in bars), default=1)
    for bar in bars:
        yield _line(bar, most)
    yield Text(
        f"  p50 {scoreboard.percentile_ms(50):.0f} ms, p99 {scoreboard.percentile_ms(99):.0f} ms, "
        f"max {scoreboard.percentile_ms(100):.0f} ms"
    )
    yield Text(f"  {dropped} deleted or rescheduled jobs were dropped at their old time")
    yield _result(scoreboard)


def _line(bar: Bar, most: int) -> Text:
    width = -(-bar.count * _BAR_WIDTH // most)
    return Text.assemble(f"{bar.label:>14} ", ("█" * width, "cyan"), f" {bar.count}")


def _result(scoreboard: Scoreboard) -> Text:
    facts = f"{scoreboard.early} early, {scoreboard.lost} lost, {scoreboard.doubled} run twice, "
    facts += f"{scoreboard.revived} run at a cancelled time"
    if scoreboard.is_clean:
        return Text.assemble(("✔ ", "bold green"), facts)
    return Text.assemble(("✘ ", "bold red"), (facts, "red"))
