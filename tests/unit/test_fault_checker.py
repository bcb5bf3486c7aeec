"""The checker of fault runs flags what it must, and nothing else: histories made by hand."""

from pathlib import Path

import pytest

from tests.faults.checker import Verdict, check, percentile
from tests.faults.history import Event, HistoryReader, HistoryWriter, Kind

Line = tuple[float, Kind] | tuple[float, Kind, float] | tuple[float, Kind, float, int]


def judge(*lines: Line) -> Verdict:
    """Check the history of one job: times, kinds, delays and attempts."""
    return check([_event(*line) for line in lines])


def _event(at: float, kind: Kind, delay: float = 0.0, attempt: int = 1) -> Event:
    return Event(at, kind, "job", attempt=attempt, delay=delay)


PUT: list[Line] = [(0.0, Kind.PUT, 10.0), (0.1, Kind.CONFIRMED)]


def test_a_job_that_came_at_its_time_is_good() -> None:
    verdict = judge(*PUT, (10.02, Kind.DELIVERED), (10.1, Kind.FINISHED))
    assert verdict.is_good
    assert (verdict.puts, verdict.confirmed, verdict.doubled, verdict.late) == (1, 1, 0, 0)
    assert verdict.lateness["p99"] == pytest.approx(0.02)


@pytest.mark.parametrize(
    "seen",
    [(), ((10.0, Kind.DELIVERED),), ((10.0, Kind.DELIVERED), (10.1, Kind.RETRIED, 1.0))],
    ids=["never delivered", "never finished", "never delivered again"],
)
def test_a_confirmed_job_that_is_not_finished_is_lost(seen: tuple[Line, ...]) -> None:
    verdict = judge(*PUT, *seen)
    assert [one.job for one in verdict.lost] == ["job"]
    assert not verdict.is_good


@pytest.mark.parametrize(
    "seen",
    [
        ((0.0, Kind.PUT, 10.0), (30.0, Kind.UNKNOWN)),
        (*PUT, (5.0, Kind.DELETE), (5.1, Kind.DELETED)),
        (*PUT, (5.0, Kind.DELETE)),
        (*PUT, (99.0, Kind.PARKED)),
    ],
    ids=["unconfirmed", "deleted", "perhaps deleted", "parked"],
)
def test_what_was_not_promised_is_not_lost(seen: tuple[Line, ...]) -> None:
    assert judge(*seen).is_good


def test_a_parked_job_is_counted_unless_it_was_finished() -> None:
    assert judge(*PUT, (99.0, Kind.PARKED)).parked == ["job"]
    finished: list[Line] = [(10.0, Kind.DELIVERED), (10.1, Kind.FINISHED)]
    assert judge(*PUT, *finished, (99.0, Kind.PARKED)).parked == []


def test_a_job_that_comes_before_its_delay_is_early() -> None:
    verdict = judge(*PUT, (9.9, Kind.DELIVERED), (10.1, Kind.FINISHED))
    assert verdict.early[0].seconds == pytest.approx(0.1)
    assert not verdict.is_good


def test_an_early_job_is_flagged_though_its_put_was_never_confirmed() -> None:
    assert judge((0.0, Kind.PUT, 10.0), (9.0, Kind.DELIVERED), (9.1, Kind.FINISHED)).early


def test_a_retry_that_comes_before_its_delay_is_early() -> None:
    first: list[Line] = [*PUT, (10.0, Kind.DELIVERED), (10.5, Kind.RETRIED, 3.0)]
    assert judge(*first, (13.4, Kind.DELIVERED, 0, 2), (13.5, Kind.FINISHED)).early
    assert judge(*first, (13.6, Kind.DELIVERED, 0, 2), (13.7, Kind.FINISHED)).is_good


def test_the_first_of_two_equal_attempts_says_when_the_next_is_due() -> None:
    verdict = judge(
        *PUT,
        (10.0, Kind.DELIVERED),
        (12.0, Kind.RETRIED, 3.0),
        (10.5, Kind.RETRIED, 3.0),
        (13.6, Kind.DELIVERED, 0, 2),
        (13.7, Kind.FINISHED),
    )
    assert verdict.is_good


@pytest.mark.parametrize(("began", "runs", "races"), [(4.9, 0, 0), (7.0, 0, 1), (7.2, 1, 0)])
def test_a_job_that_runs_two_seconds_after_its_delete_is_a_deleted_run(
    began: float, runs: int, races: int
) -> None:
    verdict = judge(
        (0.0, Kind.PUT, 1.0),
        (0.1, Kind.CONFIRMED),
        (5.0, Kind.DELETE),
        (5.1, Kind.DELETED),
        (began, Kind.DELIVERED),
    )
    assert (len(verdict.deleted_runs), verdict.delete_races) == (runs, races)
    assert verdict.is_good == (runs == 0)


def test_a_retry_after_the_delete_is_a_deleted_run_too() -> None:
    verdict = judge(
        *PUT,
        (10.0, Kind.DELIVERED),
        (10.1, Kind.RETRIED, 5.0),
        (10.2, Kind.DELETE),
        (10.3, Kind.DELETED),
        (15.2, Kind.DELIVERED, 0, 2),
    )
    assert verdict.deleted_runs[0].seconds == pytest.approx(4.9)


def test_a_delete_that_did_not_return_promises_nothing() -> None:
    assert judge(*PUT, (1.0, Kind.DELETE), (60.0, Kind.DELIVERED)).is_good


def test_only_a_repeated_attempt_is_doubled() -> None:
    runs: list[Line] = [
        (10.0, Kind.DELIVERED),
        (10.1, Kind.RETRIED, 0.0),
        (10.2, Kind.DELIVERED, 0, 2),
    ]
    assert judge(*PUT, *runs, (10.3, Kind.FINISHED)).doubled == 0
    assert judge(*PUT, *runs, (10.4, Kind.DELIVERED, 0, 2), (10.5, Kind.FINISHED)).doubled == 1


def test_late_jobs_are_counted_and_are_not_a_violation() -> None:
    verdict = judge(*PUT, (12.0, Kind.DELIVERED), (12.1, Kind.FINISHED))
    assert (verdict.late, verdict.is_good) == (1, True)


def test_faults_are_counted_by_name() -> None:
    faults = [Event(at, Kind.FAULT, detail=f"kill-node {at:g}") for at in (1.0, 2.0)]
    assert check(faults).faults == {"kill-node": 2}


@pytest.mark.parametrize(("share", "value"), [(50, 5.0), (95, 10.0), (99, 10.0), (100, 10.0)])
def test_percentiles_are_the_nearest_rank(share: int, value: float) -> None:
    assert percentile([float(number) for number in range(1, 11)], share) == value
    assert percentile([], share) == 0.0


def test_a_history_is_read_while_it_grows(tmp_path: Path) -> None:
    writer, reader = HistoryWriter(tmp_path, "one"), HistoryReader(tmp_path)
    assert reader.read() == []
    writer.write(Kind.PUT, "a", delay=1.5)
    (put,) = reader.read()
    assert (put.kind, put.job, put.delay, put.by) == (Kind.PUT, "a", 1.5, "one")
    with (tmp_path / "one.jsonl").open("ab") as file:
        file.write(b'{"at": 1, "kind": "fini')
        file.flush()
        assert reader.read() == []
        file.write(b'shed", "job": "a"}\n')
    assert [event.kind for event in reader.read()] == [Kind.FINISHED]
