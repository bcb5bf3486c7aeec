"""Durations: parsing, rounding and formatting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay import duration
from rabbitdelay.errors import InvalidJob


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("0", 0),
        ("90", 90_000),
        ("0.25", 250),
        ("250ms", 250),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("30M", 1_800_000),
        ("1y2mo3d", (365 + 60 + 3) * 86_400_000),
        ("2w", 14 * 86_400_000),
        ("0.1ms", 1),
    ],
)
def test_text_is_parsed(text: str, expected_ms: int) -> None:
    assert duration.parse(text, what="delay") == expected_ms


@pytest.mark.parametrize("text", ["", "x", "5 parsecs", "-1", "1h-30m", "nan", "1e3", "h"])
def test_text_that_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidJob, match="invalid delay"):
        duration.parse(text, what="delay")


@pytest.mark.parametrize("text", ["9" * 101, "9" * 400 + "h", "1h" * 1_000_000])
def test_text_that_is_too_long_is_refused(text: str) -> None:
    with pytest.raises(InvalidJob, match="more than 100 characters"):
        duration.parse(text, what="delay")


def test_the_longest_text_is_a_number() -> None:
    assert duration.parse("9" * 99 + "y", what="delay") > 10**99


@pytest.mark.parametrize(
    ("text", "expected_ms"), [("-1", 0), ("-1h30m", 0), (" -5 ", 0), ("1h30m", 5_400_000)]
)
def test_a_negative_delay_means_now(text: str, expected_ms: int) -> None:
    assert duration.parse_delay(text, what="delay") == expected_ms


@pytest.mark.parametrize("text", ["-", "--1", "-x", "1h-30m"])
def test_a_lone_minus_sign_is_not_a_duration(text: str) -> None:
    with pytest.raises(InvalidJob, match="invalid delay"):
        duration.parse_delay(text, what="delay")


@given(st.integers(0, 10**12))
def test_a_described_duration_parses_to_itself(duration_ms: int) -> None:
    assert duration.parse(duration.describe(duration_ms), what="delay") == duration_ms
