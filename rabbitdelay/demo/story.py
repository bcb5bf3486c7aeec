"""The story: who orders what, when, and how long they have to pay for it."""

from dataclasses import dataclass
from itertools import cycle, islice

TOPIC = "orderclose"

OPENING_SECONDS = 3.0
"""How long new orders keep coming in."""

_CROWD = 94
_CROWD_DELAYS_MS = (2_000, 500, 5_000, 1_500, 250, 3_000, 8_000, 1_000)
_PAYING = 3
"""Every third of the crowd pays in time."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order, and with it one job: close it after the delay unless it is paid."""

    id: str
    who: str
    delay_ms: int
    paid: bool
    placed_seconds: float
    """When, after the curtain has risen."""
    named: bool = False
    """Whether the audience is told of it when it is placed."""


_NAMED = (
    Order("order-ada", "Ada, a telescope", 12_000, paid=True, placed_seconds=0.0, named=True),
    Order("order-alan", "Alan, a bicycle", 250, paid=False, placed_seconds=0.4, named=True),
    Order("order-grace", "Grace, a clock", 8_000, paid=False, placed_seconds=0.8, named=True),
    Order("order-edsger", "Edsger, a pen", 1_500, paid=True, placed_seconds=1.2, named=True),
    Order("order-barbara", "Barbara, a lamp", 5_000, paid=False, placed_seconds=1.6, named=True),
    Order("order-tony", "Tony, a sorter", 3_000, paid=True, placed_seconds=2.0, named=True),
)


def orders() -> tuple[Order, ...]:
    """All orders of the evening, in the order they are placed."""
    return tuple(sorted((*_NAMED, *_crowd()), key=lambda order: order.placed_seconds))


def _crowd() -> list[Order]:
    delays = islice(cycle(_CROWD_DELAYS_MS), _CROWD)
    return [
        Order(
            id=f"order-{number:02}",
            who=f"order {number}",
            delay_ms=delay_ms,
            paid=number % _PAYING == 0,
            placed_seconds=OPENING_SECONDS * number / _CROWD,
        )
        for number, delay_ms in enumerate(delays, start=1)
    ]
