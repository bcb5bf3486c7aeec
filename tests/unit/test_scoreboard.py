"""The demo's scoreboard: nothing early, lost or doubled goes unnoticed."""

from rabbitdelay.demo.scoreboard import Arrival, Bar, Scoreboard, histogram
from rabbitdelay.demo.story import orders


def scoreboard(*arrivals: tuple[str, float], times_b: int = 1) -> Scoreboard:
    board = Scoreboard({"a": 1, "b": times_b})
    for name, lateness_ms in arrivals:
        board.add(Arrival(name, 1_000.0, 1_000.0 + lateness_ms))
    return board


def test_all_is_well() -> None:
    board = scoreboard(("a", 5), ("b", 7))
    assert board.is_clean
    assert (board.arrived, board.expected) == (2, 2)


def test_early() -> None:
    board = scoreboard(("a", -1), ("b", 7))
    assert (board.early, board.is_clean) == (1, False)


def test_lost() -> None:
    board = scoreboard(("a", 5))
    assert (board.lost, board.is_clean) == (1, False)


def test_doubled() -> None:
    board = scoreboard(("a", 5), ("a", 6), ("b", 7))
    assert (board.doubled, board.lost, board.is_clean) == (1, 0, False)


def test_what_is_given_back_arrives_again() -> None:
    board = scoreboard(("a", 5), ("b", 7), times_b=2)
    assert (board.lost, board.is_clean) == (1, False)
    board.add(Arrival("b", 1_000.0, 1_001.0))
    assert (board.lost, board.doubled, board.is_clean) == (0, 0, True)


def test_the_histogram_has_no_empty_ends() -> None:
    assert histogram([6.0, 7.0, 25.0]) == [
        Bar("5 - 10 ms", 2),
        Bar("10 - 20 ms", 0),
        Bar("20 - 50 ms", 1),
    ]
    assert histogram([]) == []


def test_the_story_has_a_hundred_orders_with_their_own_ids() -> None:
    assert len({order.id for order in orders()}) == len(orders()) == 103
