"""The demo's orders: customer, article, time of the order and time to pay."""

from dataclasses import dataclass
from enum import Enum
from itertools import cycle, islice

TOPIC = "orderclose"

OPENING_SECONDS = 3.0
"""Seconds during which new orders are placed."""

_UNNAMED = 92
_UNNAMED_DELAYS_MS = (2_000, 500, 5_000, 1_500, 250, 3_000, 8_000, 1_000)
TTR_SECONDS = 2
"""Time to run of the jobs, in seconds."""
KICKED_AFTER_SECONDS = 3.0
"""Seconds until the buried job is kicked, so that viewers can read the reason."""
_PAYING = 3
"""Every third unnamed customer pays in time."""
DELETED_AFTER_SECONDS = 1.5
RESCHEDULED_AFTER_SECONDS = 1.0
NEW_DELAY_MS = 5_000
"""New delay of the rescheduled job, in milliseconds from the time of the change."""


class Mishap(Enum):
    """Failure in the processing of an order's job."""

    NONE = "none"
    HANGS = "hangs"
    """The first attempt hangs, and the job is redelivered after its ttr."""
    FAILS_TWICE = "fails twice"
    """The first two attempts fail, and the third succeeds."""
    BURIED = "buried"
    """The first attempt buries the job, which is then kicked."""

    @property
    def arrivals(self) -> int:
        """Number of times that the job arrives."""
        return {Mishap.NONE: 1, Mishap.FAILS_TWICE: 3}.get(self, 2)


class Change(Enum):
    """Change to an order's job before it is due. The value is the text shown."""

    NONE = "nothing"
    DELETED = "paid; its job is deleted"
    RESCHEDULED = f"gets more time; rescheduled, {NEW_DELAY_MS / 1000:g} s from now"

    @property
    def after_seconds(self) -> float:
        """Seconds between the order and its change."""
        return {
            Change.DELETED: DELETED_AFTER_SECONDS,
            Change.RESCHEDULED: RESCHEDULED_AFTER_SECONDS,
        }.get(self, 0.0)


@dataclass(frozen=True, slots=True)
class Order:
    """An order and its job, which closes the order after the delay unless it is paid."""

    id: str
    label: str
    delay_ms: int
    paid: bool
    placed_seconds: float
    """Seconds between the start of the demo and the order."""
    named: bool = False
    """Whether the order is shown when it is placed."""
    mishap: Mishap = Mishap.NONE
    change: Change = Change.NONE

    @property
    def arrivals(self) -> int:
        """Number of times that the job arrives."""
        return 0 if self.change is Change.DELETED else self.mishap.arrivals

    @property
    def last_delay_ms(self) -> int:
        """Delay of the job in milliseconds, after the change if there is one."""
        return NEW_DELAY_MS if self.change is Change.RESCHEDULED else self.delay_ms

    @property
    def last_due_seconds(self) -> float:
        """Seconds between the start of the demo and the job's final due time."""
        since_seconds = self.change.after_seconds if self.change is Change.RESCHEDULED else 0.0
        return self.placed_seconds + since_seconds + self.last_delay_ms / 1000


def _mishap(id: str, label: str, mishap: Mishap, delay_ms: int, *, placed_seconds: float) -> Order:
    return Order(
        id, label, delay_ms, paid=False, placed_seconds=placed_seconds, named=True, mishap=mishap
    )


def _change(id: str, label: str, change: Change, delay_ms: int, *, placed_seconds: float) -> Order:
    paid = change is Change.DELETED
    return Order(
        id, label, delay_ms, paid=paid, placed_seconds=placed_seconds, named=True, change=change
    )


_NAMED = (
    Order("order-ada", "Ada, a telescope", 12_000, paid=True, placed_seconds=0.0, named=True),
    Order("order-alan", "Alan, a bicycle", 250, paid=False, placed_seconds=0.4, named=True),
    Order("order-grace", "Grace, a clock", 8_000, paid=False, placed_seconds=0.8, named=True),
    Order("order-edsger", "Edsger, a pen", 1_500, paid=True, placed_seconds=1.2, named=True),
    Order("order-barbara", "Barbara, a lamp", 5_000, paid=False, placed_seconds=1.6, named=True),
    Order("order-tony", "Tony, a sorter", 3_000, paid=True, placed_seconds=2.0, named=True),
    _mishap("order-niklaus", "Niklaus, a compass", Mishap.HANGS, 2_000, placed_seconds=0.2),
    _mishap("order-donald", "Donald, an organ", Mishap.FAILS_TWICE, 1_000, placed_seconds=0.6),
    _mishap("order-margaret", "Margaret, a moon", Mishap.BURIED, 1_000, placed_seconds=1.0),
    _change("order-hedy", "Hedy, a radio", Change.RESCHEDULED, 3_000, placed_seconds=1.4),
    _change("order-katherine", "Katherine, a map", Change.DELETED, 5_000, placed_seconds=1.8),
)


def orders() -> tuple[Order, ...]:
    """Return all orders of the demo, sorted by the time they are placed."""
    return tuple(sorted((*_NAMED, *_unnamed()), key=lambda order: order.placed_seconds))


def _unnamed() -> list[Order]:
    delays = islice(cycle(_UNNAMED_DELAYS_MS), _UNNAMED)
    return [
        Order(
            id=f"order-{number:02}",
            label=f"order {number}",
            delay_ms=delay_ms,
            paid=number % _PAYING == 0,
            placed_seconds=OPENING_SECONDS * number / _UNNAMED,
        )
        for number, delay_ms in enumerate(delays, start=1)
    ]
