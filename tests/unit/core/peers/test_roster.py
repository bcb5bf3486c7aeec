"""Which peers are alive: those that were heard of recently."""

import pytest

from rabbitdelay.core.peers.roster import (
    BEAT_SECONDS,
    MOST_PEERS,
    SILENT_SECONDS,
    Roster,
    is_peer,
)


def test_a_peer_is_alive_until_it_is_silent_for_too_long() -> None:
    roster = Roster()
    roster.heard("a", 100.0)
    roster.heard("b", 100.0 + BEAT_SECONDS)
    assert roster.living(100.0 + SILENT_SECONDS - 0.1) == ["a", "b"]
    assert roster.living(100.0 + SILENT_SECONDS) == ["b"]
    roster.heard("a", 100.0 + SILENT_SECONDS)
    assert roster.living(100.0 + SILENT_SECONDS) == ["a", "b"]


def test_a_peer_that_has_left_is_not_alive() -> None:
    roster = Roster()
    roster.heard("a", 0.0)
    roster.gone("a")
    roster.gone("unknown")
    assert roster.living(0.0) == []


def test_all_are_forgotten_together() -> None:
    roster = Roster()
    roster.heard("a", 0.0)
    roster.clear()
    assert roster.living(0.0) == []


def test_peers_that_do_not_exist_use_a_bounded_amount_of_memory() -> None:
    roster = Roster()
    for number in range(3 * MOST_PEERS):
        roster.heard(str(number), 0.0)
    assert len(roster.living(0.0)) == MOST_PEERS


def test_a_new_peer_takes_the_place_of_one_that_is_gone() -> None:
    roster = Roster()
    for number in range(MOST_PEERS):
        roster.heard(str(number), 0.0)
    roster.heard("0", SILENT_SECONDS)
    roster.heard("new", SILENT_SECONDS)
    assert roster.living(SILENT_SECONDS) == ["0", "new"]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("0123456789abcdef.1", True),
        ("0123456789abcdef.999999999", True),
        ("0123456789abcdef.", False),
        ("0123456789abcdef.1234567890", False),
        ("0123456789ABCDEF.1", False),
        ("0123456789abcdef.1\n", False),
        ("x.0123456789abcdef.1", False),
        ("", False),
        (None, False),
        (5, False),
    ],
)
def test_only_names_of_a_fixed_form_are_peers(name: object, *, is_one: bool) -> None:
    assert is_peer(name) is is_one
