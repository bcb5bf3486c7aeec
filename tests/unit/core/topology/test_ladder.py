"""The ladder: digits, rounding and hops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.ladder import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from rabbitdelay.errors import InvalidJob

delays = st.integers(0, ladder.MAX_DELAY_MS) | st.integers(0, 2 * HOUR_MS)


def labels(delay_ms: int) -> list[str]:
    return [hop.label for hop in ladder.hops(ladder.to_digits(delay_ms))]


@pytest.mark.parametrize(
    ("delay_ms", "expected"),
    [
        (0, []),
        (1, ["10ms"]),
        (250, ["200ms", "50ms"]),
        (60 * SECOND_MS, ["1m"]),
        (30 * MINUTE_MS, ["30m"]),
        (90 * MINUTE_MS, ["1h", "30m"]),
        (DAY_MS, ["1d"]),
        (7 * DAY_MS, ["7d"]),
        (30 * DAY_MS, ["30d"]),
        (365 * DAY_MS, ["360d", "5d"]),
        (ladder.MAX_DELAY_MS, ["3240d", "30d", "18d"]),
    ],
)
def test_common_delays_take_few_hops(delay_ms: int, expected: list[str]) -> None:
    assert labels(delay_ms) == expected


@pytest.mark.parametrize(
    ("delay_ms", "rounded_ms"),
    [
        (1, 10),
        (59_991, 60_000),
        (60_001, 60_100),
        (59 * MINUTE_MS + 59_950, HOUR_MS),
        (HOUR_MS + 1, HOUR_MS + SECOND_MS),
        (DAY_MS, DAY_MS),
    ],
)
def test_a_delay_is_rounded_up_to_its_grain(delay_ms: int, rounded_ms: int) -> None:
    assert ladder.round_up(delay_ms) == rounded_ms
    assert ladder.to_delay_ms(ladder.to_digits(delay_ms)) == rounded_ms


@given(delays)
def test_rounding_never_shortens_and_adds_less_than_a_grain(delay_ms: int) -> None:
    added_ms = ladder.round_up(delay_ms) - delay_ms
    assert 0 <= added_ms < ladder.grain_ms(delay_ms)


@given(delays)
def test_digits_add_up_to_the_rounded_delay(delay_ms: int) -> None:
    digits = ladder.to_digits(delay_ms)
    assert ladder.to_delay_ms(digits) == ladder.round_up(delay_ms)
    for level, digit in zip(ladder.LEVELS, digits, strict=True):
        assert 0 <= digit <= level.highest_digit


@given(delays, st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True))
def test_a_routing_key_parses_to_its_digits_and_topic(delay_ms: int, topic: str) -> None:
    digits = ladder.to_digits(delay_ms)
    assert ladder.parse_routing_key(ladder.routing_key(digits, topic)) == (digits, topic)


@pytest.mark.parametrize(
    "key", ["", "orderclose", "0.0.0.0.0.0.0.0", "0.0.0.0.0.0.0.0.", "0.0.0.0.77.0.0.0.a", "x.y.a"]
)
def test_a_foreign_routing_key_parses_to_none(key: str) -> None:
    assert ladder.parse_routing_key(key) is None


@given(st.integers(0, DAY_MS - SECOND_MS))
def test_at_most_three_hops_under_a_day(delay_ms: int) -> None:
    assert len(labels(delay_ms)) <= 3


@given(st.integers(DAY_MS, 30 * DAY_MS - SECOND_MS))
def test_under_thirty_days_at_most_four_hops(delay_ms: int) -> None:
    assert len(labels(delay_ms)) <= 4


@given(delays)
def test_each_hold_queue_is_passed_at_most_once_longest_first(delay_ms: int) -> None:
    lengths = [hop.hold_ms for hop in ladder.hops(ladder.to_digits(delay_ms))]
    assert lengths == sorted(set(lengths), reverse=True)


def test_every_hold_queue_has_its_own_label() -> None:
    every = [
        level.hold_label(digit)
        for level in ladder.LEVELS
        for digit in range(1, level.highest_digit + 1)
    ]
    assert len(set(every)) == len(every) == 208


@pytest.mark.parametrize("delay_ms", [-1, ladder.MAX_DELAY_MS + 1])
def test_a_delay_out_of_range_is_refused(delay_ms: int) -> None:
    with pytest.raises(InvalidJob, match="delay must"):
        ladder.to_digits(delay_ms)
