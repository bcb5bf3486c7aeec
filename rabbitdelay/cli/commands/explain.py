"""`rabbitdelay explain`: draw the path of a delay through the hold queues."""

from dataclasses import dataclass
from datetime import timedelta

import click
from rich.console import Console
from rich.text import Text

from rabbitdelay import duration
from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.options import json_option, read_duration
from rabbitdelay.cli.output.console import output, print_json
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.ladder import Digits, Hop
from rabbitdelay.core.topology.topology import Topology

_CELL = 7


@dataclass(frozen=True, slots=True)
class Explanation:
    """A delay and its path through the ladder."""

    asked_ms: int
    digits: Digits

    @property
    def kept_ms(self) -> int:
        """Effective delay in milliseconds, after rounding up."""
        return ladder.to_delay_ms(self.digits)

    @property
    def hops(self) -> tuple[Hop, ...]:
        """Hops through hold queues, in order."""
        return ladder.hops(self.digits)


@click.command(short_help="Show a delay's path through the hold queues.")
@click.argument("delay", type=read_duration)
@json_option
@pass_settings
def explain(settings: Settings, delay: timedelta, *, as_json: bool) -> None:
    """Show the digits, the hops, the hold queues and the rounding of a DELAY.

    No broker is needed.
    """
    asked_ms = duration.milliseconds(delay, what="delay")
    explanation = Explanation(asked_ms, ladder.to_digits(asked_ms))
    if as_json:
        print_json(_as_json(explanation, settings.topology))
    else:
        _draw(output(), explanation, settings.topology)


def _as_json(explanation: Explanation, topology: Topology) -> dict[str, object]:
    digits = explanation.digits
    return {
        "asked_ms": explanation.asked_ms,
        "kept_ms": explanation.kept_ms,
        "grain_ms": ladder.grain_ms(explanation.asked_ms),
        "digits": {level.name: digit for level, digit in zip(ladder.LEVELS, digits, strict=True)},
        "hops": [
            {"hold_queue": topology.hold_queue(hop), "hold_ms": hop.hold_ms}
            for hop in explanation.hops
        ],
        "exchange": topology.entrance(digits),
        "routing_key": ladder.routing_key(digits, "<topic>"),
    }


def _draw(console: Console, explanation: Explanation, topology: Topology) -> None:
    pieces = (
        _headline(explanation),
        _digits(explanation.digits),
        _path(explanation.hops),
        _facts(explanation, topology),
    )
    console.print(Text("\n\n").join(pieces))


def _headline(explanation: Explanation) -> Text:
    kept = Text(duration.describe(explanation.kept_ms), "bold green")
    count = len(explanation.hops)
    hops = f", in {count} hop{'s' if count != 1 else ''}" if count else ", straight to ready"
    if explanation.asked_ms == explanation.kept_ms:
        return Text.assemble(kept, " is kept exactly", hops)
    asked = Text(duration.describe(explanation.asked_ms), "bold yellow")
    return Text.assemble(asked, " is kept as ", kept, hops)


def _digits(digits: Digits) -> Text:
    names = "".join(level.name.rjust(_CELL) for level in ladder.LEVELS)
    row = Text(f"{names}\n", "dim")
    for digit in digits:
        row.append(str(digit).rjust(_CELL), "bold cyan" if digit else "dim")
    return row


def _path(hops: tuple[Hop, ...]) -> Text:
    """Return the path from put to ready as a row of boxes."""
    if not hops:
        return Text.assemble("  put ──▶ ", ("ready", "bold green"))
    lines = ["─" * (len(hop.label) + 2) for hop in hops]
    top = Text(" " * 10 + "   ".join(f"┌{line}┐" for line in lines), "cyan")
    bottom = Text(" " * 10 + "   ".join(f"└{line}┘" for line in lines), "cyan")
    middle = Text("  put ──▶ ")
    for hop in hops:
        middle.append_tokens([("│ ", "cyan"), (hop.label, "bold"), (" ├─▶ ", "cyan")])
    return Text("\n").join([top, middle.append("ready", "bold green"), bottom])


def _facts(explanation: Explanation, topology: Topology) -> Text:
    facts = [
        *(("hold queue", topology.hold_queue(hop)) for hop in explanation.hops),
        ("exchange", topology.entrance(explanation.digits)),
        ("routing key", ladder.routing_key(explanation.digits, "<topic>")),
        ("rounding", _rounding(explanation)),
    ]
    lines = [Text.assemble((f"  {name:13}", "dim"), value) for name, value in facts]
    return Text("\n").join(lines)


def _rounding(explanation: Explanation) -> str:
    grain = duration.describe(ladder.grain_ms(explanation.asked_ms))
    added_ms = explanation.kept_ms - explanation.asked_ms
    if not added_ms:
        return f"none; delays of this length are kept to {grain}"
    return f"up by {duration.describe(added_ms)}, to the next {grain}: late, never early"
