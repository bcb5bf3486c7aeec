"""A worker with `until_empty` ends when no job of its topics is ready, and not before."""

import pytest

from tests.support.memory.manual_worker import ManualWorker, WorkerStage

QUIET_SECONDS = 0.5
"""Longer than a worker waits for another event before it counts the queues."""


def draining(*topics: str) -> ManualWorker:
    return ManualWorker(*topics, run={"until_empty": True}, concurrency=1)


def test_a_worker_without_jobs_ends_after_a_moment(stage: WorkerStage) -> None:
    worker = stage.begin(draining("t", "u"))
    assert worker.runs_ended == 0
    stage.advance(QUIET_SECONDS)
    assert worker.runs_ended == 1


def test_a_worker_with_a_running_job_does_not_end(stage: WorkerStage) -> None:
    stage.put("a", "b")
    worker = stage.begin(draining("t"))
    stage.advance(30)
    worker.finish("a")
    stage.advance(30)
    assert (worker.executor.started, worker.runs_ended) == (["a", "b"], 0)
    worker.finish("b")
    stage.advance(QUIET_SECONDS)
    assert worker.runs_ended == 1


def test_a_job_put_while_the_queues_are_counted_is_run(stage: WorkerStage) -> None:
    """It arrives after its own queue was counted, and before the last one is."""
    worker = stage.begin(draining("t", "u"))
    to_client = stage.connection("consumer").to_client
    to_client.silence()
    stage.advance(QUIET_SECONDS)
    assert to_client.held == 1, "the first queue is counted"
    counted = "u"  # the worker counts the last topic first
    stage.put("a", topic=counted)
    to_client.restore()
    stage.advance(QUIET_SECONDS)
    assert (worker.executor.started, worker.runs_ended) == (["a"], 0)
    worker.finish("a")
    stage.advance(QUIET_SECONDS)
    assert worker.runs_ended == 1


def test_a_count_that_finds_jobs_starts_again(stage: WorkerStage) -> None:
    """They are ready, but the broker has not sent them to this worker yet."""
    worker = stage.begin(draining("t"))
    to_broker = stage.connection("consumer").to_broker
    to_broker.silence()
    stage.advance(QUIET_SECONDS)
    with stage.held_back("t"):
        stage.put("a")
        to_broker.restore()
        stage.advance(5)
        assert (worker.executor.started, worker.runs_ended) == ([], 0)
    stage.advance(QUIET_SECONDS)
    assert worker.executor.started == ["a"]


def test_a_worker_that_may_not_hand_out_jobs_does_not_end(stage: WorkerStage) -> None:
    worker = draining("t")
    stage.begin(worker)
    stage.close_log_channel()
    stage.advance(QUIET_SECONDS)
    assert worker.runs_ended == 0
    stage.advance(5)
    assert worker.runs_ended == 1


def test_a_count_lost_with_its_connection_is_taken_again(stage: WorkerStage) -> None:
    worker = stage.begin(draining("t"))
    stage.connection("consumer").to_client.silence()
    stage.advance(QUIET_SECONDS)
    stage.connection("consumer").cut()
    stage.advance(5)
    assert worker.runs_ended == 1


def test_a_paused_topic_counts_as_empty(
    stage: WorkerStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.put("a")
    stage.pause("t")
    worker = stage.begin(draining("t", "u"))
    stage.advance(QUIET_SECONDS)
    assert worker.runs_ended == 1
    assert stage.ready() == ["a"]
    assert "topic t: paused, its jobs were not run" in caplog.text


def test_a_job_that_is_about_to_be_retried_keeps_the_worker(stage: WorkerStage) -> None:
    """Its copy is not confirmed yet, so its message may come back."""
    worker = stage.begin(draining("t"))
    stage.put("a")
    publisher = stage.connections_of("publisher")[0]
    publisher.to_client.silence()
    worker.settlement.release(worker.executor.lease_of("a"), 3_600_000)
    worker.executor.end("a")
    stage.advance(QUIET_SECONDS)
    assert worker.runs_ended == 0
    publisher.to_client.restore()
    stage.advance(QUIET_SECONDS)
    assert worker.runs_ended == 1


def test_a_worker_that_is_told_to_stop_does_not_count(stage: WorkerStage) -> None:
    worker = stage.begin(draining("t"))
    stage.put("a")
    worker.stop()
    stage.advance(QUIET_SECONDS)
    assert worker.runs_ended == 0
    worker.finish("a")
    stage.advance(QUIET_SECONDS)
    assert worker.runs_ended == 1
