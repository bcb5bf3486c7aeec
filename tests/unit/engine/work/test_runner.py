"""The runner settles a job by what its handler returns or raises, and reports what it did."""

import logging
from collections.abc import Iterator

import pytest

from rabbitdelay import (
    Bury,
    Client,
    Job,
    LeaseLost,
    NoResponse,
    Outcome,
    ReservedJob,
    Retry,
    TimedOut,
    Worker,
)
from tests.support.memory.stage import Stage
from tests.support.patience import wait_until


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(raise_errors=False) as stage:
        yield stage


@pytest.fixture
def client(stage: Stage) -> Client:
    return stage.client()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "rabbitdelay.worker")
    return caplog


class Unprintable(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise ValueError("no text")


def test_hooks_are_called_around_the_handler(stage: Stage, client: Client) -> None:
    worker, seen = Worker(), list[object]()
    worker.before(lambda job: seen.append(("before", job.id)))
    worker.handler("t")(lambda: "value")
    worker.after(lambda job, value: seen.append(("after", job.id, value)))
    stage.run(worker)
    client.put("t", id="a")
    stage.settle()
    assert seen == [("before", "a"), ("after", "a", "value")]


def test_an_error_of_a_hook_before_counts_as_the_handlers(stage: Stage, client: Client) -> None:
    worker, runs = Worker(), list[str]()

    def refuse(job: Job) -> None:
        raise Bury(f"not {job.id}")

    worker.before(refuse)
    worker.handler("t")(lambda job: runs.append(job.id))
    stage.run(worker)
    client.put("t", id="a")
    stage.settle()
    (buried,) = stage.buried("t")
    assert (buried.reason, runs) == ("not a", [])


def test_an_error_of_a_hook_after_does_not_affect_the_job(
    stage: Stage, client: Client, log: pytest.LogCaptureFixture
) -> None:
    worker = Worker()
    worker.handler("t")(lambda: None)
    worker.after(lambda _job, _value: exit(1))  # noqa: PLR1722 - must not end the program
    stage.run(worker)
    client.put("t")
    stage.settle()
    assert stage.jobs("t") == []
    assert "hook: failed" in log.text


def test_a_slot_is_free_when_the_hooks_after_have_returned(stage: Stage, client: Client) -> None:
    worker, seen = Worker(concurrency=1), list[str]()
    worker.handler("t")(lambda job: seen.append(job.id))

    def wait(job: Job, _value: object) -> None:
        stage.sleep(10)
        seen.append(f"after {job.id}")

    worker.after(wait)
    stage.run(worker)
    client.put("t", id="a")
    client.put("t", id="b")
    stage.advance(20)
    assert seen == ["a", "after a", "b", "after b"]


def test_hooks_learn_of_a_failure_and_what_follows(stage: Stage, client: Client) -> None:
    worker, seen = Worker(), list[Outcome]()

    @worker.handler("t", max_attempts=2, backoff=[60])
    def fail() -> None:
        raise ZeroDivisionError

    worker.on_error(lambda _job, _error, outcome: seen.append(outcome))
    stage.run(worker)
    client.put("t")
    stage.advance(100)
    assert [one.will_retry for one in seen] == [True, False]


def test_a_handler_that_settled_its_job_may_raise(stage: Stage, client: Client) -> None:
    worker = Worker()

    @worker.handler("t")
    def finish(job: ReservedJob) -> None:
        job.finish()
        raise ZeroDivisionError

    stage.run(worker)
    client.put("t")
    stage.settle()
    assert (stage.jobs("t"), stage.buried("t")) == ([], [])


def test_a_handler_that_released_its_job_may_return(stage: Stage, client: Client) -> None:
    worker = Worker()

    @worker.handler("t")
    def release(job: ReservedJob) -> None:
        if job.attempt == 1:
            job.release(delay=60)

    stage.run(worker)
    client.put("t")
    stage.settle()
    assert [job.attempt for job in stage.jobs("t")] == [2]
    stage.advance(61)
    assert stage.jobs("t") == []


def test_a_failure_after_the_ttr_is_reported_once(
    stage: Stage, client: Client, log: pytest.LogCaptureFixture
) -> None:
    worker, told = Worker(), list[type[BaseException]]()

    @worker.handler("t", ttr=10, max_attempts=1)
    def fail_late() -> None:
        stage.sleep(15)
        raise ZeroDivisionError

    worker.on_error(lambda _job, error: told.append(type(error)))
    stage.run(worker)
    client.put("t")
    stage.advance(20)
    wait_until(lambda: worker.stats().lost_threads == 0)
    assert told == [TimedOut]
    assert "failed too late" not in log.text


def test_a_failure_on_a_lost_connection_is_reported_as_too_late(
    stage: Stage, client: Client, log: pytest.LogCaptureFixture
) -> None:
    worker, runs = Worker(), list[int]()

    @worker.handler("t", ttr=60, backoff=5)
    def fail(job: ReservedJob) -> None:
        runs.append(job.attempt)
        if len(runs) == 1:
            stage.connections_of("consumer")[0].cut()
            stage.sleep(0)
            assert job.time_left == 0
            raise ZeroDivisionError

    stage.run(worker)
    client.put("t")
    stage.advance(5)
    assert "failed too late" in log.text
    assert runs == [1, 1], "the job has come back unchanged"


def test_a_finish_on_a_lost_connection_is_reported_as_too_late(
    stage: Stage, client: Client, log: pytest.LogCaptureFixture
) -> None:
    worker, runs = Worker(), list[int]()

    @worker.handler("t", ttr=60)
    def work(job: ReservedJob) -> None:
        runs.append(job.attempt)
        stage.connections_of("consumer")[0].cut()
        stage.sleep(0)

    stage.run(worker)
    client.put("t")
    stage.advance(5)
    assert "finished too late" in log.text
    assert (runs, stage.jobs("t")) == ([1], [])


def test_an_error_whose_text_cannot_be_read_is_reported(
    stage: Stage, client: Client, log: pytest.LogCaptureFixture
) -> None:
    worker = Worker()

    @worker.handler("t", max_attempts=1)
    def fail() -> None:
        raise Unprintable

    stage.run(worker)
    client.put("t")
    stage.settle()
    assert [job.error_type for job in stage.buried("t")] == ["Unprintable"]
    (record,) = [one for one in log.records if getattr(one, "event", None) == "buried"]
    assert "(its text cannot be read: ValueError)" in record.getMessage()


def test_a_job_deleted_while_its_handler_fails_is_not_retried(
    stage: Stage, client: Client, log: pytest.LogCaptureFixture
) -> None:
    worker = Worker()

    @worker.handler("t")
    def fail(job: ReservedJob) -> None:
        client.delete(job.id)
        while not job.deleted:
            stage.sleep(0.1)
        raise ZeroDivisionError

    stage.run(worker)
    client.put("t")
    stage.advance(10)
    assert stage.jobs("t") == []
    assert "failed, not retried" in log.text


def test_a_job_that_times_out_after_it_was_deleted_is_dropped(
    stage: Stage, client: Client, log: pytest.LogCaptureFixture
) -> None:
    worker = Worker()
    worker.handler("t", ttr=10)(lambda: stage.sleep(15))
    stage.run(worker)
    client.put("t", id="a")
    stage.settle()
    client.delete("a")
    stage.advance(20)
    assert stage.jobs("t") == []
    assert "timed out after 10 s, not retried" in log.text


def test_a_retry_that_the_handler_requests_is_not_a_failure(
    stage: Stage, client: Client, log: pytest.LogCaptureFixture
) -> None:
    worker = Worker()

    @worker.handler("t")
    def ask(job: ReservedJob) -> None:
        if job.attempt == 1:
            raise Retry("not yet", delay=60)

    stage.run(worker)
    client.put("t")
    stage.advance(61)
    assert stage.jobs("t") == []
    assert "retry requested, in 60 s (not yet)" in log.text
    assert not [one for one in log.records if one.levelno >= logging.WARNING]


def test_a_failure_whose_copy_cannot_be_published_is_reported(
    stage: Stage, client: Client, log: pytest.LogCaptureFixture
) -> None:
    worker = Worker()

    @worker.handler("t", backoff=[60])
    def fail() -> None:
        raise ZeroDivisionError("why")

    stage.run(worker)
    stage.connections_of("publisher")[0].to_broker.silence()
    client.put("t")
    stage.settle()
    worker.stop(at_once=True)
    stage.advance(60)
    assert "failed (ZeroDivisionError: why)" in log.text


def test_a_response_is_published_before_the_job_is_finished(stage: Stage, client: Client) -> None:
    worker = Worker()
    worker.handler("t")(lambda: {"answer": 42})
    stage.run(worker)
    response = client.response(client.put("t", reply=True), wait=5)
    assert response is not None
    assert response.body == {"answer": 42}


def test_a_value_that_is_not_json_is_reported_to_the_putter(
    stage: Stage, client: Client, log: pytest.LogCaptureFixture
) -> None:
    worker = Worker()
    worker.handler("t")(object)
    stage.run(worker)
    job = client.put("t", reply=True)
    with pytest.raises(NoResponse, match="object"):
        client.response(job, wait=5)
    stage.settle()
    assert "no response" in log.text
    assert stage.jobs("t") == []


def test_a_response_that_is_not_confirmed_does_not_keep_a_job_from_finishing(
    stage: Stage, client: Client, log: pytest.LogCaptureFixture
) -> None:
    worker = Worker()
    worker.handler("t", ttr=10, keep_responses=True)(lambda: "value")
    stage.run(worker)
    stage.settle()
    stage.silence_queue(stage.topology.responses("t").queue.name)
    client.put("t")
    stage.advance(9.9)
    assert "no response (the broker has not confirmed it in time)" in log.text
    assert stage.jobs("t") == []


def test_a_job_that_was_settled_has_no_response(stage: Stage, client: Client) -> None:
    worker = Worker()

    @worker.handler("t", keep_responses=True)
    def finish(job: ReservedJob) -> str:
        job.finish()
        return "value"

    stage.run(worker)
    client.put("t")
    stage.settle()
    assert stage.messages(stage.topology.responses("t").queue.name) == []


def test_a_job_whose_connection_is_lost_before_its_thread_starts_does_not_run(
    stage: Stage, client: Client
) -> None:
    """One thread serves both handlers, and the first keeps it busy."""
    worker, runs = Worker(concurrency=2), list[str]()

    @worker.handler("t", ttr=60)
    def work(job: ReservedJob) -> None:
        runs.append(job.id)
        if len(runs) == 1:
            stage.connections_of("consumer")[0].cut()

    stage.run(worker)
    client.put("t", id="a")
    stage.advance(5)
    assert runs == ["a"]


def test_a_finish_in_the_handler_is_refused_after_the_ttr(stage: Stage, client: Client) -> None:
    worker, refused = Worker(), list[str]()

    @worker.handler("t", ttr=10, max_attempts=1)
    def finish_late(job: ReservedJob) -> None:
        stage.sleep(15)
        with pytest.raises(LeaseLost):
            job.finish()
        refused.append(job.id)

    stage.run(worker)
    client.put("t", id="a")
    stage.advance(20)
    wait_until(lambda: refused == ["a"])
