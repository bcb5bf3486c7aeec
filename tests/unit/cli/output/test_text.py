"""Counts and times as the command line shows them."""

from rabbitdelay.cli.output.text import moment


def test_a_time_beyond_all_calendars_is_displayed() -> None:
    assert moment(1 << 60) == "1152921504606846976 ms since 1970"
