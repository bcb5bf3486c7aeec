"""The checker of fault runs flags what it must, and nothing else: histories made by hand."""

from pathlib import Path

import pytest

from tests.faults.checker import Judgement, check, percentile
from tests.faults.history import Event, HistoryReader, HistoryWriter, Kind

Line = tuple[float, Kind] | tuple[float, Kind, float] | tuple[float, Kind, float, int]


def judge(*lines: Line) -> Judgement:
    """Check the history of one job: times, kinds, delays and attempts."""
    return check([_event(*line) for line in lines])


def _event(at: float, kind: Kind, delay: float = 0.0, attempt: int = 1) -> Event:
    return Event(at, kind, "job", attempt=attempt, delay=delay)


PUT: list[Line] = [(0.0, Kind.PUT, 10.0), (0.1, Kind.CONFIRMED)]


def test_a_job_that_came_at_its_time_is_good() -> None:
    judgement = judge(*PUT, (10.02, Kind.DELIVERED), (10.1, Kind.FINISHED))
    assert judgement.is_good
    assert (judgement.puts, judgement.confirmed, judgement.doubled) == (1, 1, 0)
    assert (judgement.lateness.jobs, judgement.lateness.late) == (1, 0)
    assert judgement.lateness.percentiles["p99"] == pytest.approx(0.02)


@pytest.mark.parametrize(
    "seen",
    [(), ((10.0, Kind.DELIVERED),), ((10.0, Kind.DELIVERED), (10.1, Kind.RETRIED, 1.0))],
    ids=["never delivered", "never finished", "never delivered again"],
)
def test_a_confirmed_job_that_is_not_finished_is_lost(seen: tuple[Line, ...]) -> None:
    judgement = judge(*PUT, *seen)
    assert [one.job for one in judgement.lost] == ["job"]
    assert not judgement.is_good


@pytest.mark.parametrize(
    "seen",
    [
        ((0.0, Kind.PUT, 10.0), (30.0, Kind.UNKNOWN)),
        (*PUT, (5.0, Kind.DELETE), (5.1, Kind.DELETED)),
        (*PUT, (5.0, Kind.DELETE)),
    ],
    ids=["unconfirmed", "deleted", "perhaps deleted"],
)
def test_an_unconfirmed_put_is_not_lost(seen: tuple[Line, ...]) -> None:
    assert judge(*seen).is_good


def test_a_job_that_is_left_parked_is_a_violation_unless_it_was_finished() -> None:
    judgement = check(
        [*(_event(*line) for line in PUT), Event(99.0, Kind.PARKED, "job", detail="q")]
    )
    assert [(one.job, one.detail) for one in judgement.parked] == [("job", "q")]
    assert (judgement.lost, judgement.is_good) == ([], False)
    finished: list[Line] = [(10.0, Kind.DELIVERED), (10.1, Kind.FINISHED)]
    assert judge(*PUT, *finished, (99.0, Kind.PARKED)).is_good


def test_a_job_that_comes_before_its_delay_is_early() -> None:
    judgement = judge(*PUT, (9.9, Kind.DELIVERED), (10.1, Kind.FINISHED))
    assert judgement.early[0].seconds == pytest.approx(0.1)
    assert not judgement.is_good


def test_an_early_job_is_flagged_though_its_put_was_never_confirmed() -> None:
    assert judge((0.0, Kind.PUT, 10.0), (9.0, Kind.DELIVERED), (9.1, Kind.FINISHED)).early


def test_a_retry_that_comes_before_its_delay_is_early() -> None:
    first: list[Line] = [*PUT, (10.0, Kind.DELIVERED), (10.5, Kind.RETRIED, 3.0)]
    assert judge(*first, (13.4, Kind.DELIVERED, 0, 2), (13.5, Kind.FINISHED)).early
    assert judge(*first, (13.6, Kind.DELIVERED, 0, 2), (13.7, Kind.FINISHED)).is_good


def test_the_first_of_two_equal_attempts_says_when_the_next_is_due() -> None:
    judgement = judge(
        *PUT,
        (10.0, Kind.DELIVERED),
        (12.0, Kind.RETRIED, 3.0),
        (10.5, Kind.RETRIED, 3.0),
        (13.6, Kind.DELIVERED, 0, 2),
        (13.7, Kind.FINISHED),
    )
    assert judgement.is_good


@pytest.mark.parametrize(("began", "runs", "races"), [(4.9, 0, 0), (7.0, 0, 1), (7.2, 1, 0)])
def test_a_job_that_runs_too_long_after_its_delete_is_a_deleted_run(
    began: float, runs: int, races: int
) -> None:
    judgement = judge(
        (0.0, Kind.PUT, 1.0),
        (0.1, Kind.CONFIRMED),
        (5.0, Kind.DELETE),
        (5.1, Kind.DELETED),
        (began, Kind.DELIVERED),
    )
    assert (len(judgement.deleted_runs), judgement.delete_races) == (runs, races)
    assert judgement.is_good == (runs == 0)


def test_the_hand_out_counts_and_not_the_first_line_of_the_handler() -> None:
    deleted: list[Line] = [*PUT, (9.0, Kind.DELETE), (9.1, Kind.DELETED)]
    assert judge(*deleted, (11.3, Kind.DELIVERED, 0.3)).is_good
    assert judge(*deleted, (11.3, Kind.DELIVERED, 0.1)).deleted_runs[0].seconds == pytest.approx(
        2.1
    )


def test_a_retry_after_the_delete_is_a_deleted_run_too() -> None:
    judgement = judge(
        *PUT,
        (10.0, Kind.DELIVERED),
        (10.1, Kind.RETRIED, 5.0),
        (10.2, Kind.DELETE),
        (10.3, Kind.DELETED),
        (15.2, Kind.DELIVERED, 0, 2),
    )
    assert judgement.deleted_runs[0].seconds == pytest.approx(4.9)


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
    judgement = judge(*PUT, (12.0, Kind.DELIVERED), (12.1, Kind.FINISHED))
    assert (judgement.lateness.late, judgement.is_good) == (1, True)


def test_faults_are_counted_by_name_and_must_have_an_effect() -> None:
    faults = [Event(at, Kind.FAULT, detail=f"kill-node {at:g}") for at in (1.0, 2.0)]
    judgement = check(faults)
    assert (judgement.faults, judgement.without_effect) == ({"kill-node": 2}, ["kill-node"])
    assert not judgement.is_good
    assert check([*faults, Event(1.5, Kind.EFFECT, detail="kill-node 1")]).is_good


@pytest.mark.parametrize(("deleted", "in_time"), [(7.9, 1), (8.1, 0), (11.0, 0)])
def test_a_delete_is_in_time_if_it_returned_long_enough_before_the_due_time(
    deleted: float, in_time: int
) -> None:
    judgement = judge(*PUT, (deleted - 0.1, Kind.DELETE), (deleted, Kind.DELETED))
    assert (judgement.deletes, judgement.deletes_in_time) == (1, in_time)


def test_deletes_that_did_not_return_are_counted_as_failed() -> None:
    assert judge(*PUT, (5.0, Kind.DELETE)).deletes_failed == 1


def test_a_hung_job_counts_as_timed_out_when_it_comes_again_as_the_next_attempt() -> None:
    hung: list[Line] = [*PUT, (10.0, Kind.DELIVERED), (10.0, Kind.HUNG)]
    assert [one.job for one in judge(*hung).lost] == ["job"]
    again = judge(*hung, (12.0, Kind.DELIVERED, 0, 2), (12.1, Kind.FINISHED))
    assert (again.timeouts, again.is_good) == (1, True)
    redelivered = judge(*hung, (11.0, Kind.DELIVERED), (11.1, Kind.FINISHED))
    assert redelivered.timeouts == 0


def test_lateness_is_reported_by_the_last_fault_before_the_due_time() -> None:
    events = [_event(*line) for line in (*PUT, (13.0, Kind.DELIVERED), (13.1, Kind.FINISHED))] + [
        Event(1.0, Kind.FAULT, detail="kill-node 3.0s"),
        Event(9.0, Kind.FAULT, detail="stop-app 2.0s"),
        Event(12.0, Kind.FAULT, detail="freeze-node 2.0s"),
    ]
    found = check(events).lateness_by_fault
    assert list(found) == ["stop-app"]
    assert found["stop-app"].percentiles["p100"] == pytest.approx(3.0)
    before = check([*events[:2], Event(10.5, Kind.DELIVERED, "job"), *events[-1:]])
    assert list(before.lateness_by_fault) == ["start"]


def work(by: str, seconds: range) -> list[Event]:
    """Return a delivery by this process in each of these seconds."""
    return [Event(float(second), Kind.DELIVERED, f"{by}-{second}", by=by) for second in seconds]


@pytest.mark.parametrize(
    ("own", "peer", "idle"),
    [
        ([range(200)], range(200), 0),
        ([range(20), range(95, 200)], range(200), 75),
        ([range(20)], range(200), 180),
        ([range(20), range(95, 200)], range(30), 10),
        ([range(150, 200)], range(200), 0),
    ],
    ids=["busy", "idle", "hangs for good", "all idle", "started late"],
)
def test_a_process_that_does_nothing_while_its_peers_work_is_stalled(
    own: list[range], peer: range, idle: int
) -> None:
    events = [event for part in own for event in work("worker-aio-0.1", part)]
    judgement = check([*events, *work("worker-sync-0.1", peer), *work("putter-aio.1", range(999))])
    stalled = [one for one in judgement.stalled if one.job == "worker-aio-0"]
    assert [one.seconds for one in stalled] == ([idle] if idle > 60 else [])


def test_a_successor_goes_on_with_the_work_of_a_killed_process() -> None:
    own = [*work("worker-aio-0.1", range(50)), *work("worker-aio-0.2", range(55, 200))]
    assert not check([*own, *work("worker-sync-0.1", range(200))]).stalled


@pytest.mark.parametrize(
    ("fault", "until", "standstill"),
    [("memory-alarm", 50, 40), ("stop-app", 50, 9), ("memory-alarm", 15, 5)],
    ids=["no reason to stop", "the broker was gone", "short"],
)
def test_all_workers_that_do_nothing_without_a_reason_stand_still(
    fault: str, until: int, standstill: int
) -> None:
    faults = [
        Event(5.0, Kind.FAULT, detail=f"{fault} 35.0s"),
        Event(5.5, Kind.EFFECT, detail=f"{fault} 1"),
        Event(40.0, Kind.HEALED, detail=fault),
        Event(90.0, Kind.FAULT, detail=f"{fault} 5.0s"),
        Event(95.0, Kind.HEALED, detail=fault),
    ]
    work_done = [*work("worker-aio-0.1", range(10)), *work("worker-aio-0.1", range(until, 100))]
    judgement = check([*faults, *work_done])
    assert judgement.standstill == standstill
    assert judgement.is_good == (standstill <= 15)


def test_the_slowest_calls_are_reported() -> None:
    judgement = judge(*PUT, (5.0, Kind.DELETE), (7.5, Kind.DELETED))
    assert judgement.slowest_calls == {"put": pytest.approx(0.1), "delete": pytest.approx(2.5)}


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
