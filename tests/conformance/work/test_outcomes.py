"""Failed attempts: the job's outcome, and how hooks, logs and headers report it."""

import asyncio
import logging
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from rabbitdelay import (
    Bury,
    Client,
    Job,
    Outcome,
    RabbitDelayError,
    ReservedJob,
    Retry,
    RetryPolicy,
    TimedOut,
)
from tests.conftest import ClientFactory, LookerFactory, WorkerFactory
from tests.support.fronts import Front
from tests.support.jobs.popped_jobs import pop
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until
from tests.support.programs import process_handlers

Reports = list[tuple[str, BaseException, Outcome]]


def _report_errors(worker: Any, reports: Reports) -> None:  # noqa: ANN401 - a worker of either front
    @worker.on_error  # type: ignore[untyped-decorator]
    def report(job: Job, error: BaseException, outcome: Outcome) -> None:
        reports.append((job.id, error, outcome))


def _hang(job: ReservedJob) -> None:
    wait_until(lambda: job.time_left == 0, seconds=30)
    time.sleep(0.1)


async def _hang_async(job: ReservedJob) -> None:
    await asyncio.sleep(30 + job.attempt)


def test_on_error_receives_whether_and_when_the_job_is_retried(
    client: Client, make_worker: WorkerFactory
) -> None:
    worker, reports = make_worker(), Reports()
    _report_errors(worker, reports)

    @worker.handler("t", max_attempts=2, backoff=0.2)
    def fail(job: Job) -> None:
        raise ValueError(f"attempt {job.attempt} of {job.max_attempts}")

    client.put("t", id="job")
    before = datetime.now(UTC)
    with working(worker):
        wait_until(lambda: len(reports) == 2)
    (_, first_error, first), (_, last_error, last) = reports
    assert [str(first_error), str(last_error)] == ["attempt 1 of 2", "attempt 2 of 2"]
    assert (first.attempt, first.max_attempts, first.will_retry, first.is_buried) == (
        *(1, 2),
        *(True, False),
    )
    assert first.delay is not None
    assert first.next_due is not None
    assert timedelta(seconds=0.1) <= first.delay <= timedelta(seconds=0.2)
    assert first.next_due >= before + first.delay
    assert last == Outcome(2, 2, will_retry=False, is_buried=True, reason="attempt 2 of 2 failed")


def test_the_outcome_reflects_the_handlers_request(
    client: Client, make_worker: WorkerFactory
) -> None:
    """The handler asks for a delay with Retry, or gives a reason with Bury."""
    worker, reports = make_worker(), Reports()
    _report_errors(worker, reports)

    @worker.handler("t", max_attempts=5)
    def fail(job: ReservedJob) -> None:
        if job.id == "retry":
            raise Retry("later", delay=60)
        if job.id == "bury":
            raise Bury("never")
        raise ValueError

    for name in ("retry", "bury"):
        client.put("t", id=name)
    with working(worker):
        wait_until(lambda: len(reports) == 2)
    outcomes = {name: outcome for name, _, outcome in reports}
    assert outcomes["retry"].delay == timedelta(seconds=60)
    assert (outcomes["retry"].attempt, outcomes["retry"].max_attempts) == (1, 5)
    assert (outcomes["bury"].is_buried, outcomes["bury"].reason) == (True, "never")
    assert not outcomes["bury"].will_retry


def test_the_outcome_of_a_deleted_job_is_dropped(
    client: Client, make_worker: WorkerFactory
) -> None:
    worker, reports = make_worker(), Reports()
    _report_errors(worker, reports)

    @worker.handler("t")
    def fail(job: ReservedJob) -> None:
        client_of_test.delete("job")
        wait_until(lambda: job.deleted)
        raise ValueError("too late")

    client_of_test = client
    client.put("t", id="job")
    with working(worker):
        wait_until(lambda: reports)
    (_, _, outcome) = reports[0]
    assert (outcome.will_retry, outcome.is_buried, outcome.delay) == (False, False, None)
    assert outcome.reason is not None
    assert "deleted" in outcome.reason


def test_the_outcome_of_a_timed_out_job_is_a_retry_and_then_bury(
    front: Front, client: Client, make_worker: WorkerFactory
) -> None:
    worker, reports = make_worker(), Reports()
    _report_errors(worker, reports)
    hang = _hang if front.name == "sync" else _hang_async
    worker.handler("t", ttr=1, max_attempts=2)(hang)
    client.put("t", id="job")
    with working(worker):
        wait_until(lambda: len(reports) == 2, seconds=30)
    assert [type(error) for _, error, _ in reports] == [TimedOut, TimedOut]
    (first, last) = (outcome for _, _, outcome in reports)
    assert (first.will_retry, first.attempt, first.max_attempts) == (True, 1, 2)
    assert first.delay is not None
    assert (last.is_buried, last.reason) == (True, "attempt 2 of 2 failed")


def test_a_hook_with_two_parameters_is_called_without_the_outcome(
    client: Client, make_worker: WorkerFactory
) -> None:
    """A third parameter with a default gets its default, unless it is named `outcome`."""
    worker = make_worker()
    reports: list[tuple[object, ...]] = []
    mark = object()
    worker.on_error(lambda job, error: reports.append((job.id, str(error))))
    worker.on_error(lambda job, _error, mark=mark: reports.append((job.id, mark)))
    worker.on_error(lambda job, _error, outcome=None: reports.append((job.id, outcome.will_retry)))

    @worker.handler("t", max_attempts=1)
    def fail() -> None:
        raise ValueError("oh")

    client.put("t", id="job")
    with working(worker):
        wait_until(lambda: len(reports) == 3)
    assert reports == [("job", "oh"), ("job", mark), ("job", False)]


@pytest.mark.parametrize("own", [None, 3])
def test_max_attempts_of_a_reserved_job_is_the_effective_number(
    make_client: ClientFactory, own: int | None
) -> None:
    """Without its own number the client's applies, and rescheduling does not store that one."""
    client = make_client(retry=RetryPolicy(max_attempts=7))
    client.put("t", id="job", max_attempts=own)
    job = pop(client)
    assert job.max_attempts == (own or 7)
    moved = client.reschedule(job, delay=0)
    assert moved.max_attempts == own


def test_a_handler_in_a_process_sees_its_max_attempts(
    client: Client, make_worker: WorkerFactory
) -> None:
    worker = make_worker(pool="process")
    worker.handler("t", max_attempts=4)(process_handlers.tell_max_attempts)
    job = client.put("t", reply=True)
    with working(worker):
        response = client.response(job, wait=patience(30))
    assert response is not None
    assert response.body == 4


def test_a_requested_retry_is_not_logged_as_a_failure(
    client: Client, make_worker: WorkerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the last attempt is logged as one, because the job is buried."""
    caplog.set_level(logging.INFO, "rabbitdelay.worker")
    worker = make_worker()

    @worker.handler("t", max_attempts=2)
    def poll() -> None:
        raise Retry("not paid yet", delay=0.1)

    client.put("t", id="job")
    with working(worker):
        wait_until(lambda: worker.stats().counts.buried == 1)
        wait_until(lambda: any(_event(one) == "buried" for one in caplog.records))
    asked, buried = [one for one in caplog.records if hasattr(one, "job_id")]
    assert (_event(asked), asked.levelname) == ("retry requested", "INFO")
    assert asked.getMessage() == "job job (t), attempt 1: retry requested, in 0.1 s (not paid yet)"
    assert asked.retry_in_ms == 100  # type: ignore[attr-defined]
    assert (_event(buried), buried.levelname) == ("buried", "ERROR")
    assert "failed" not in asked.getMessage()


def _event(record: logging.LogRecord) -> str | None:
    return getattr(record, "event", None)


def test_a_fixed_backoff_schedule_is_followed_exactly(
    client: Client, make_worker: WorkerFactory
) -> None:
    worker, reports = make_worker(), Reports()
    _report_errors(worker, reports)
    began: list[float] = []

    @worker.handler("t", max_attempts=4, backoff=[0.4, timedelta(seconds=0.2)])
    def fail() -> None:
        began.append(time.monotonic())
        raise ValueError

    client.put("t")
    with working(worker):
        wait_until(lambda: len(reports) == 4)
    delays = [outcome.delay for _, _, outcome in reports]
    assert delays == [timedelta(seconds=one) for one in (0.4, 0.2, 0.2)] + [None]
    waits = [later - sooner for sooner, later in pairwise(began)]
    assert all(wait >= least for wait, least in zip(waits, (0.4, 0.2, 0.2), strict=True))


class _BankBusy(ConnectionError):
    """An exception that a handler defines itself."""


def test_the_type_of_an_exception_decides_how_the_job_is_retried(
    client: Client, make_worker: WorkerFactory, buried: LookerFactory
) -> None:
    """The nearest base class applies. Retry and Bury decide for themselves."""
    worker, reports = make_worker(), Reports()
    _report_errors(worker, reports)
    errors: dict[str, Exception] = {
        "busy": _BankBusy("busy"),
        "refused": ConnectionRefusedError("refused"),
        "value": UnicodeError("not text"),
        "other": LookupError("other"),
        "retry": Retry("later"),
    }
    policies: dict[type[BaseException], Any] = {
        OSError: RetryPolicy(max_attempts=1),
        _BankBusy: [30],
        ValueError: Bury,
        RabbitDelayError: Bury,
    }

    @worker.handler("t", backoff=[60], max_attempts=5, policies=policies)
    def fail(job: Job) -> None:
        raise errors[job.id]

    for name in errors:
        client.put("t", id=name)
    with working(worker):
        graves = buried("t").wait_for(2)
        wait_until(lambda: len(reports) == len(errors))
    outcomes = {name: outcome for name, _, outcome in reports}
    assert outcomes["busy"].delay == timedelta(seconds=30)
    assert outcomes["other"].delay == outcomes["retry"].delay == timedelta(seconds=60)
    assert (outcomes["busy"].max_attempts, outcomes["refused"].max_attempts) == (5, 1)
    reasons = {grave.message_id: grave.headers["rd-reason"] for grave in graves}
    assert reasons == {
        "refused": "attempt 1 of 1 failed",
        "value": "UnicodeError is not retried",
    }


def test_a_timeout_can_have_a_policy_of_its_own(
    front: Front, client: Client, make_worker: WorkerFactory
) -> None:
    worker, reports = make_worker(), Reports()
    _report_errors(worker, reports)
    hang = _hang if front.name == "sync" else _hang_async
    worker.handler("t", ttr=1, policies={TimedOut: Bury})(hang)
    client.put("t", id="job")
    with working(worker):
        wait_until(lambda: reports, seconds=30)
    (_, _, outcome) = reports[0]
    assert (outcome.is_buried, outcome.reason) == (True, "TimedOut is not retried")


@pytest.mark.parametrize("kind", ["refused", "odd"])
def test_policies_apply_to_handlers_in_processes(
    client: Client, make_worker: WorkerFactory, buried: LookerFactory, kind: str
) -> None:
    """This includes exceptions that cannot be pickled."""
    worker = make_worker(pool="process")
    policies = {process_handlers.Refused: Bury, process_handlers.Odd: Bury}
    worker.handler("t", policies=policies)(process_handlers.raise_one)
    client.put("t", kind)
    with working(worker):
        (grave,) = buried("t").wait_for(1, seconds=30)
    assert grave.headers["rd-reason"] == f"{kind.title()} is not retried"
