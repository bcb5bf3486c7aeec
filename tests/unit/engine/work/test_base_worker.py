"""A worker runs until it is stopped or fails, and returns the jobs that it does not finish."""

import threading
from typing import Any

import pytest

from rabbitdelay import InvalidConfiguration, TopologyError, WorkerFailed
from rabbitdelay.core.deletes.records import RecordTooNew
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.engine.work.base_worker import MAX_LOST
from tests.support.memory.manual_worker import ManualWorker, WorkerStage

GRACE_SECONDS = 30.0


# Stopping


def test_stopping_returns_prefetched_jobs_and_lets_the_running_one_finish(
    stage: WorkerStage,
) -> None:
    worker = stage.begin(ManualWorker("t", concurrency=1, prefetch=3))
    stage.put("a", "b", "c")
    worker.stop()
    stage.settle()
    assert stage.ready() == ["b", "c"]
    stage.advance(GRACE_SECONDS / 2)
    assert worker.runs_ended == 0
    worker.finish("a")
    stage.advance(1)
    assert (worker.runs_ended, worker.executor.started) == (1, ["a"])
    assert stage.left() == ["b", "c"]


def test_a_job_on_its_way_while_the_worker_stops_is_returned(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t", concurrency=1, prefetch=2))
    stage.put("a")
    to_client = stage.connection("consumer").to_client
    to_client.silence()
    stage.put("b")
    worker.stop()
    stage.settle()
    to_client.restore()
    stage.settle()
    assert (worker.executor.started, stage.ready()) == (["a"], ["b"])
    worker.finish("a")
    stage.advance(1)
    assert worker.runs_ended == 1


def test_a_worker_that_stops_while_it_subscribes_takes_no_job(stage: WorkerStage) -> None:
    worker = ManualWorker("t")
    stage.put("a")
    stage.links.silence(to_broker=False)
    stage.run(worker)
    for _ in range(100):  # until the worker has asked to consume the topic
        for connection in stage.links.connections:
            connection.to_client.let_through()
        stage.settle()
        if stage.consumer_count("t"):
            break
    worker.stop()
    stage.settle()
    stage.links.restore()
    stage.advance(1)
    assert (worker.executor.started, worker.runs_ended) == ([], 1)
    assert stage.ready() == ["a"]


def test_a_job_that_runs_longer_than_the_grace_is_returned(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t", grace=GRACE_SECONDS))
    stage.put("a")
    worker.stop()
    stage.advance(GRACE_SECONDS - 1)
    assert worker.runs_ended == 0
    stage.advance(2)
    assert worker.runs_ended == 1
    assert stage.ready() == ["a"]
    assert worker.executor.is_closed


def test_stopping_at_once_does_not_wait_for_handlers(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t", grace=GRACE_SECONDS))
    stage.put("a")
    worker.stop(at_once=True)
    stage.advance(1)
    assert worker.runs_ended == 1
    assert worker.was_stopped_at_once
    assert stage.ready() == ["a"]


def test_a_job_that_times_out_while_the_worker_stops_lets_it_end(stage: WorkerStage) -> None:
    worker = ManualWorker(grace=GRACE_SECONDS).handle("t", ttr=10, timeout_delay=60)
    stage.begin(worker)
    stage.put("a")
    worker.stop()
    stage.advance(11)
    assert (worker.executor.abandoned, worker.runs_ended) == (["a"], 1)


# Failing


def test_a_worker_gives_up_when_too_many_handlers_are_lost(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t"))
    worker.executor.lost = MAX_LOST
    stage.wait_until_ended(worker)
    with pytest.raises(WorkerFailed, match="still running after the ttr"):
        stage.settle()


def test_a_worker_whose_connection_was_ended_by_something_else_fails(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t"))
    stage.put("a")
    worker.consumer.close_soon(0)
    stage.wait_until_ended(worker)
    with pytest.raises(WorkerFailed, match="I/O thread has ended"):
        stage.settle()
    assert stage.ready() == ["a"]


def test_a_worker_fails_at_a_log_of_a_later_version(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t", concurrency=1, prefetch=2, grace=1))
    stage.put("a", "b")
    log = stage.topology.log().queue.name
    stage.publish_message(Message(b'{"version": 99}', {}), log)
    stage.wait_until_ended(worker)
    with pytest.raises(RecordTooNew):
        stage.settle()
    assert worker.executor.started == ["a"]


def test_a_worker_fails_if_a_topic_cannot_be_consumed_at_first(stage: WorkerStage) -> None:
    worker = ManualWorker("t", declare=False)
    stage.put("a", topic="another")
    stage.run(worker)
    stage.wait_until_ended(worker)
    with pytest.raises(TopologyError):
        stage.settle()


# Running


def test_a_running_worker_cannot_be_run_again(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t"))
    with pytest.raises(InvalidConfiguration, match="already running"):
        worker.run(handle_signals=False)
    stage.put("a")
    assert worker.executor.started == ["a"]


def test_a_worker_runs_again_after_it_was_stopped(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t"))
    first = worker.client
    worker.stop(at_once=True)
    stage.advance(1)
    assert worker.runs_ended == 1
    thread = threading.Thread(target=worker.run, kwargs={"handle_signals": False})
    thread.start()
    stage.wait_until_consumed("t")
    stage.put("a")
    assert worker.executor.started == ["a"]
    assert (worker.client is first, worker.was_stopped_at_once) == (False, False)
    worker.stop(at_once=True)
    stage.wait_until_ended(worker, runs=2)
    thread.join()


def test_a_worker_that_stops_before_it_runs_ends_at_once(stage: WorkerStage) -> None:
    worker = ManualWorker("t")
    worker.stop()
    stage.run(worker)
    stage.advance(1)
    assert worker.runs_ended == 1


def test_a_worker_without_handlers_does_not_run() -> None:
    with pytest.raises(InvalidConfiguration, match="no handlers"):
        ManualWorker().run()


def test_the_statistics_are_zero_before_the_first_run(stage: WorkerStage) -> None:
    worker = ManualWorker("t")
    assert (worker.last_stats, worker.stats().running) == (None, 0)
    stage.begin(worker)
    stage.put("a", "b")
    worker.finish("a")
    assert (worker.stats().running, worker.stats().counts.finished) == (1, 1)


@pytest.mark.parametrize(
    "options", [{"concurrency": 0}, {"prefetch": 70_000}, {"grace": "soon"}, {"concurrency": True}]
)
def test_an_invalid_option_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfiguration):
        ManualWorker(**options)


def test_a_topic_has_one_handler() -> None:
    worker = ManualWorker("t")
    with pytest.raises(InvalidConfiguration, match="already has a handler"):
        worker.handle("t")


def test_the_decorator_requires_a_topic() -> None:
    with pytest.raises(InvalidConfiguration, match="requires a topic"):
        ManualWorker().handler(print)  # type: ignore[arg-type]
