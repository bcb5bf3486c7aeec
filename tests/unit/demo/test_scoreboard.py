"""The demo's scoreboard counts early, lost, repeated and cancelled jobs."""

from rabbitdelay.demo.orders import orders
from rabbitdelay.demo.scoreboard import Arrival, Bar, Scoreboard, histogram


def scoreboard(*arrivals: tuple[str, float], times_b: int = 1) -> Scoreboard:
    board = Scoreboard({"a": 1, "b": times_b})
    for name, lateness_ms in arrivals:
        board.add(Arrival(name, 1_000.0, 1_000.0 + lateness_ms))
    return board


def test_expected_arrivals_are_clean() -> None:
    board = scoreboard(("a", 5), ("b", 7))
    assert board.is_clean
    assert (board.arrived, board.expected) == (2, 2)


def test_an_early_arrival_is_counted() -> None:
    board = scoreboard(("a", -1), ("b", 7))
    assert (board.early, board.is_clean) == (1, False)


def test_a_missing_job_is_counted_as_lost() -> None:
    board = scoreboard(("a", 5))
    assert (board.lost, board.is_clean) == (1, False)


def test_a_repeated_arrival_is_counted() -> None:
    board = scoreboard(("a", 5), ("a", 6), ("b", 7))
    assert (board.doubled, board.lost, board.is_clean) == (1, 0, False)


def test_a_released_job_must_arrive_again() -> None:
    board = scoreboard(("a", 5), ("b", 7), times_b=2)
    assert (board.lost, board.is_clean) == (1, False)
    board.add(Arrival("b", 1_000.0, 1_001.0))
    assert (board.lost, board.doubled, board.is_clean) == (0, 0, True)


def test_a_job_that_runs_at_its_cancelled_time_is_counted() -> None:
    board = scoreboard(("a", 5))
    board.cancel("b", 1_000)
    assert board.did_not_run("b")
    board.add(Arrival("b", 1_000.0, 1_002.0))
    assert not board.did_not_run("b")
    assert (board.revived, board.lost, board.doubled, board.is_clean) == (1, 0, 0, False)


def test_a_job_that_runs_only_at_its_new_time_is_clean() -> None:
    board = scoreboard(("a", 5))
    board.cancel("b", 1_000)
    board.add(Arrival("b", 2_000.0, 2_003.0))
    assert (board.revived, board.is_clean) == (0, True)


def test_the_histogram_has_no_empty_ends() -> None:
    assert histogram([6.0, 7.0, 25.0]) == [
        Bar("5 - 10 ms", 2),
        Bar("10 - 20 ms", 0),
        Bar("20 - 50 ms", 1),
    ]
    assert histogram([]) == []


def test_the_demo_has_103_orders_with_unique_ids() -> None:
    assert len({order.id for order in orders()}) == len(orders()) == 103
