"""The ladder: writing a delay as digits, one level per unit of time.

This file owns two rules:

1. A delay is rounded up, never down: a job may be late by the grain, and is never early.
2. The digits add up to exactly the rounded delay, and a job passes each hold queue at most once.

The levels are units of time rather than powers of two because a hop costs one publish by the broker
and about 3 ms, and the delays that people use are round numbers of these units: 30 minutes is one
hop here, and four hops with binary levels of seconds.
"""

from dataclasses import dataclass

from rabbitdelay import duration
from rabbitdelay.errors import InvalidJob

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

MAX_DELAY_MS = (9 * 365 + 3) * DAY_MS
"""Nine calendar years, including leap days, in milliseconds."""

Digits = tuple[int, int, int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Level:
    """One unit of the ladder, with a hold queue for each digit from 1 to `highest_digit`."""

    name: str
    index: int
    unit_ms: int
    highest_digit: int

    def hold_ms(self, digit: int) -> int:
        """Return the TTL of this digit's hold queue, in milliseconds."""
        return digit * self.unit_ms

    def hold_label(self, digit: int) -> str:
        """Return the TTL as people write it: `30m`, `360d`, `900ms`."""
        length_ms = self.hold_ms(digit)
        for suffix, unit_ms in (("d", DAY_MS), ("h", HOUR_MS), ("m", MINUTE_MS), ("s", SECOND_MS)):
            if self.unit_ms >= unit_ms:
                return f"{length_ms // unit_ms}{suffix}"
        return f"{length_ms}ms"


LEVELS: tuple[Level, ...] = (
    Level("y", 0, 360 * DAY_MS, 9),
    Level("mo", 1, 30 * DAY_MS, 11),
    Level("d", 2, DAY_MS, 29),
    Level("h", 3, HOUR_MS, 23),
    Level("m", 4, MINUTE_MS, 59),
    Level("s", 5, SECOND_MS, 59),
    Level("ds", 6, 100, 9),
    Level("cs", 7, 10, 9),
)
NO_DELAY: Digits = (0, 0, 0, 0, 0, 0, 0, 0)
READY_INDEX = len(LEVELS)
"""Index below the last level, at which a job without a delay enters."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One pass through a hold queue."""

    level: Level
    digit: int

    @property
    def hold_ms(self) -> int:
        """Duration of this hop, in milliseconds."""
        return self.level.hold_ms(self.digit)

    @property
    def label(self) -> str:
        """Duration as people write it, which is part of the hold queue's name."""
        return self.level.hold_label(self.digit)


EVERY_HOP = tuple(
    Hop(level, digit) for level in LEVELS for digit in range(1, level.highest_digit + 1)
)


def grain_ms(delay_ms: int) -> int:
    """Return the precision with which a delay is kept: coarser for longer delays, to save hops."""
    if delay_ms < MINUTE_MS:
        return 10
    return 100 if delay_ms < HOUR_MS else SECOND_MS


def round_up(delay_ms: int) -> int:
    """Return the delay that the ladder keeps: the next multiple of the grain."""
    grain = grain_ms(delay_ms)
    return -(-delay_ms // grain) * grain


def check(delay_ms: int) -> int:
    """Return the delay; raise InvalidJob if the ladder cannot keep it."""
    if delay_ms < 0:
        raise InvalidJob(f"delay must not be negative, got {delay_ms / 1000:g} s")
    if delay_ms > MAX_DELAY_MS:
        raise InvalidJob(
            f"delay must be at most 9 years ({MAX_DELAY_MS // DAY_MS} days), "
            f"got {duration.describe(delay_ms)}"
        )
    return delay_ms


def to_digits(delay_ms: int) -> Digits:
    """Return the digits of a delay, after rounding it up."""
    rest = round_up(check(delay_ms))
    digits: list[int] = []
    for level in LEVELS:
        digit, rest = divmod(rest, level.unit_ms)
        digits.append(digit)
    return tuple(digits)  # type: ignore[return-value]  # as many as there are levels


def to_delay_ms(digits: Digits) -> int:
    """Return the delay that digits stand for, in milliseconds."""
    return sum(level.hold_ms(digit) for level, digit in zip(LEVELS, digits, strict=True))


def hops(digits: Digits) -> tuple[Hop, ...]:
    """Return the hold queues that these digits lead through, in order."""
    return tuple(Hop(level, digit) for level, digit in zip(LEVELS, digits, strict=True) if digit)


def entry_index(digits: Digits) -> int:
    """Return the level at which a publisher enters: the highest non-zero one, or READY_INDEX."""
    return next((index for index, digit in enumerate(digits) if digit), READY_INDEX)


def routing_key(digits: Digits, topic: str) -> str:
    """Return the routing key: all eight digits, then the topic."""
    return ".".join(map(str, digits)) + "." + topic


def parse_routing_key(key: str) -> tuple[Digits, str] | None:
    """Return the digits and the topic of a routing key, or None if it is not one of ours."""
    words = key.split(".", READY_INDEX)
    if len(words) != READY_INDEX + 1 or not words[-1]:
        return None
    digits = tuple(int(word) if word.isascii() and word.isdigit() else -1 for word in words[:-1])
    legal = all(
        0 <= digit <= level.highest_digit for level, digit in zip(LEVELS, digits, strict=True)
    )
    return (digits, words[-1]) if legal else None  # type: ignore[return-value]  # eight of them
