"""The dispatcher hands out prefetched jobs, at most once each, and only as the log allows."""

import pytest

from rabbitdelay import LeaseLost
from rabbitdelay.testing.model.vhost import Vhost
from tests.support.jobs.connections import dispatcher_of
from tests.support.memory.manual_worker import ManualWorker, WorkerStage

NO_ANSWER_SECONDS = 3.0
"""Longer than a consumer trusts what it knows of deletes."""
SUSPECT_SECONDS = 0.2
"""Longer than a suspect waits after another job has ended."""


# Handing out


def test_a_job_deleted_after_it_was_prefetched_is_dropped(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t", concurrency=1, prefetch=3))
    stage.put("a", "b", "c")
    stage.delete("b")
    worker.finish("a")
    stage.settle()
    assert worker.executor.started == ["a", "c"]
    assert stage.left() == ["c"]


def test_pausing_returns_the_prefetched_jobs_and_lets_the_running_one_finish(
    stage: WorkerStage,
) -> None:
    worker = stage.begin(ManualWorker("t", concurrency=1, prefetch=3))
    stage.put("a", "b", "c")
    stage.pause()
    assert stage.ready() == ["b", "c"]
    worker.finish("a")
    stage.advance(60)
    assert worker.executor.started == ["a"]
    stage.resume()
    assert worker.executor.started == ["a", "b"]


def test_a_job_that_arrives_after_its_topic_was_paused_is_returned(stage: WorkerStage) -> None:
    """The job is on its way when the worker reads the pause."""
    worker = stage.begin(ManualWorker("t"))
    to_broker = stage.connection("consumer").to_broker
    to_broker.silence()  # the consumer's cancel does not arrive
    stage.pause()
    stage.put("a")
    assert (worker.executor.started, stage.ready()) == ([], [])
    to_broker.restore()
    stage.settle()
    assert (worker.executor.started, stage.ready()) == ([], ["a"])


def test_a_topic_resumed_while_disconnected_is_consumed_after_the_reconnect(
    stage: WorkerStage,
) -> None:
    worker = stage.begin(ManualWorker("t"))
    stage.pause()
    stage.connection("consumer").cut()
    stage.resume()
    stage.put("a")
    stage.advance(5)
    assert worker.executor.started == ["a"]


def test_a_pause_ends_before_its_cancel_arrives(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t"))
    to_broker = stage.connection("consumer").to_broker
    to_broker.silence()
    stage.pause()
    stage.resume()
    to_broker.restore()
    stage.put("a")
    assert worker.executor.started == ["a"]


def test_no_job_starts_while_the_log_of_deletes_is_cut_off(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t", concurrency=1, prefetch=2))
    stage.put("a", "b")
    stage.close_log_channel()
    stage.settle()
    worker.finish("a")
    stage.settle()
    assert worker.executor.started == ["a"]
    stage.delete("b")
    stage.put("c")
    stage.advance(5)
    assert worker.executor.started == ["a", "c"]


def test_no_job_starts_on_an_old_proof_until_another_was_read(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t", concurrency=1, prefetch=2))
    stage.put("a", "b")
    to_client = stage.connection("consumer").to_client
    to_client.silence()
    stage.advance(NO_ANSWER_SECONDS)
    worker.finish("a")
    stage.settle()
    assert worker.executor.started == ["a"]
    to_client.restore()
    stage.settle()
    assert worker.executor.started == ["a", "b"]


def test_a_delete_that_a_silent_connection_held_up_is_known_before_the_next_job_starts(
    stage: WorkerStage,
) -> None:
    worker = stage.begin(ManualWorker("t", concurrency=1, prefetch=3))
    stage.put("a", "b", "c")
    to_client = stage.connection("consumer").to_client
    to_client.silence()
    stage.delete("b")
    stage.advance(NO_ANSWER_SECONDS)
    worker.finish("a")
    to_client.restore()
    stage.settle()
    assert worker.executor.started == ["a", "c"]


def test_a_job_that_waits_for_the_proof_starts_before_the_jobs_behind_it(
    stage: WorkerStage,
) -> None:
    worker = stage.begin(ManualWorker("t", concurrency=1, prefetch=4))
    stage.put("a", "b", "c", "d")
    stage.advance(NO_ANSWER_SECONDS)
    worker.finish("a")
    stage.settle()
    worker.finish("b")
    stage.settle()
    assert worker.executor.started == ["a", "b", "c"]


def test_the_thread_that_ends_a_run_starts_the_next(stage: WorkerStage) -> None:
    """No callback of the transport is needed in between."""
    worker = stage.begin(ManualWorker("t", concurrency=1, prefetch=2))
    stage.put("a", "b")
    worker.finish("a")
    assert worker.executor.started == ["a", "b"]


def test_only_the_transports_thread_starts_jobs_that_are_touched(stage: WorkerStage) -> None:
    """It sets their timers."""
    worker = ManualWorker(concurrency=1, prefetch=2).handle("t", auto_touch=True)
    stage.begin(worker)
    stage.put("a", "b")
    worker.finish("a")
    assert worker.executor.started == ["a"]
    stage.settle()
    assert worker.executor.started == ["a", "b"]


def test_a_run_whose_finish_is_refused_frees_its_slot(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t", concurrency=1, prefetch=2))
    stage.put("a", "b")
    worker.settlement.finish(worker.executor.lease_of("a"))
    with pytest.raises(LeaseLost):
        worker.finish("a")
    stage.settle()
    assert worker.executor.started == ["a", "b"]


def test_a_job_that_waits_for_a_thread_is_started_by_a_nudge(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t"))
    worker.executor.backlog = 1
    stage.put("a", "b")
    assert worker.executor.nudges == 0
    stage.advance(0.01)
    assert worker.executor.nudges == 1
    worker.executor.backlog = 0
    stage.put("c")
    stage.advance(0.01)
    assert worker.executor.nudges == 1


# Lost leases


def test_a_running_job_continues_with_its_redelivery(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t"))
    stage.put("a")
    stage.connection("consumer").cut()
    stage.advance(5)
    worker.finish("a")
    stage.settle()
    assert worker.executor.started == ["a"]
    assert stage.left() == []


def test_a_handler_that_returns_during_the_outage_is_not_run_again(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t"))
    stage.put("a")
    stage.connection("consumer").cut()
    stage.settle()
    with pytest.raises(LeaseLost):
        worker.finish("a")
    stage.advance(5)
    assert worker.executor.started == ["a"]
    assert stage.left() == []


def test_a_handler_that_finished_its_job_in_vain_is_run_again(stage: WorkerStage) -> None:
    """It may have undone its work when the finish was refused."""
    worker = stage.begin(ManualWorker("t"))
    stage.put("a")
    stage.connection("consumer").cut()
    stage.settle()
    with pytest.raises(LeaseLost):
        worker.settlement.finish(worker.executor.lease_of("a"))
    worker.executor.end("a")
    stage.advance(5)
    assert worker.executor.started == ["a", "a"]


def test_a_handler_that_returns_after_the_ttr_on_a_lost_connection_is_run_again(
    stage: WorkerStage,
) -> None:
    worker = stage.begin(ManualWorker().handle("t", ttr=30))
    stage.put("a")
    stage.links.silence()
    stage.connection("consumer").cut()
    stage.advance(30)
    with pytest.raises(LeaseLost):
        worker.finish("a")
    stage.links.restore()
    stage.advance(20)
    assert worker.executor.started == ["a", "a"]


def test_a_redelivery_without_a_token_runs_beside_the_first_delivery(stage: WorkerStage) -> None:
    """Another program put it, so two messages with one id may be two jobs."""
    worker = stage.begin(ManualWorker("t"))
    stage.publish_plain("a")
    stage.connection("consumer").cut()
    stage.advance(5)
    assert worker.executor.started == ["a", "a"]


def test_a_lost_job_that_another_consumer_took_frees_its_slot_at_its_ttr(
    stage: WorkerStage,
) -> None:
    worker = stage.begin(ManualWorker(concurrency=1).handle("t", ttr=60))
    stage.put("a")
    stage.lose_to_another_consumer("t")
    stage.put("b")
    stage.advance(59)
    assert worker.executor.started == ["a"]
    stage.advance(1)
    assert worker.executor.started == ["a", "b"]
    assert worker.executor.abandoned == ["a"]
    assert worker.stats().running == 1


def test_a_lost_job_is_given_the_ttr_that_a_touch_restarted(stage: WorkerStage) -> None:
    """The job is lost, adopted, touched, and lost again, before the first deadline."""
    worker = stage.begin(ManualWorker(concurrency=1).handle("t", ttr=60))
    stage.put("a")
    stage.connection("consumer").cut()
    stage.advance(20)
    worker.settlement.touch(worker.executor.lease_of("a"))
    stage.lose_to_another_consumer("t")
    stage.advance(55)
    assert worker.executor.abandoned == []
    stage.advance(5)
    assert worker.executor.abandoned == ["a"]


def test_a_lost_job_that_is_touched_keeps_its_slot(stage: WorkerStage) -> None:
    """Its handler renews the ttr for as long as it runs."""
    worker = stage.begin(ManualWorker(concurrency=1).handle("t", ttr=10, auto_touch=True))
    stage.put("a")
    stage.lose_to_another_consumer("t")
    stage.advance(60)
    assert worker.executor.abandoned == []


def test_a_channel_closed_by_the_broker_requeues_only_its_own_jobs(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t", "u", concurrency=2, prefetch=2))
    stage.put("a", "b")
    stage.put("c", "d", topic="u")
    stage.close_channel_of(worker, "a")
    stage.settle()
    assert stage.ready("u") == []
    stage.advance(5)
    worker.finish("a")
    worker.finish("c")
    stage.settle()
    assert sorted(worker.executor.started) == ["a", "b", "c", "d"]


def test_a_deleted_queue_is_consumed_again(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t", concurrency=1, prefetch=2))
    stage.put("a", "b")
    stage.delete_queue(stage.topology.ready_queue("t"))
    stage.settle()
    with pytest.raises(LeaseLost):
        worker.finish("a")
    stage.advance(5)
    stage.put("c")
    assert worker.executor.started == ["a", "c"], "b was deleted with its queue"


# The end of the ttr


def test_a_job_that_times_out_frees_its_slot(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker(concurrency=1, prefetch=2).handle("t", ttr=10))
    stage.put("a", "b")
    stage.advance(10)
    assert worker.executor.abandoned == ["a"]
    assert worker.executor.started == ["a", "b"]


def test_an_abandoned_handler_that_returns_frees_no_other_slot(stage: WorkerStage) -> None:
    worker = stage.begin(
        ManualWorker(concurrency=1, prefetch=3).handle("t", ttr=10, max_attempts=1)
    )
    stage.put("a", "b", "c")
    stage.advance(10)
    with pytest.raises(LeaseLost):
        worker.finish("a")
    stage.settle()
    assert worker.executor.started == ["a", "b"]
    assert worker.stats().running == 1


def test_a_handler_that_returns_at_the_deadline_has_timed_out(stage: WorkerStage) -> None:
    """It returns before the worker's timer fires: the hooks are called, and the slot is free."""
    worker = ManualWorker(concurrency=1, prefetch=3).handle("t", ttr=10, max_attempts=1)
    refused = list[str]()

    def return_late() -> None:
        with pytest.raises(LeaseLost):
            worker.finish("a")
        refused.append("a")

    stage.begin(worker)
    stage.at(10, return_late)
    stage.put("a", "b", "c")
    stage.advance(10)
    assert (refused, worker.executor.abandoned) == (["a"], ["a"])
    assert worker.executor.started == ["a", "b"]
    assert worker.stats().running == 1


def test_a_handler_that_returns_right_before_the_deadline_has_not_timed_out(
    stage: WorkerStage,
) -> None:
    worker = stage.begin(ManualWorker(concurrency=1, prefetch=2).handle("t", ttr=10))
    stage.put("a", "b")
    stage.at(9.999, lambda: worker.finish("a"))
    stage.advance(10)
    assert worker.executor.abandoned == []
    assert worker.executor.started == ["a", "b"]


def test_a_job_is_touched_until_its_handler_returns(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker(concurrency=1).handle("t", ttr=10, auto_touch=True))
    stage.put("a", "b")
    stage.advance(100)
    assert worker.executor.abandoned == []
    lease = worker.executor.lease_of("a")
    worker.finish("a")
    stage.advance(100)
    assert lease.deadline <= stage.monotonic() - 90, "touched after it was finished"


def test_a_job_is_touched_again_after_its_connection_was_lost(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker(concurrency=1).handle("t", ttr=10, auto_touch=True))
    stage.put("a")
    stage.links.silence()
    stage.connection("consumer").cut()
    stage.advance(8)  # a touch fails meanwhile
    stage.links.restore()
    stage.advance(100)
    worker.finish("a")
    stage.settle()
    assert (worker.executor.started, stage.left()) == (["a"], [])


# Suspects


def test_a_suspect_starts_when_nothing_else_runs(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t", concurrency=2, prefetch=4))
    stage.put("long")
    stage.publish_suspect("suspect")
    stage.advance(5)
    assert worker.executor.started == ["long"]
    worker.finish("long")
    stage.settle()
    assert worker.executor.started == ["long"], "the broker has not yet received the last ack"
    stage.advance(SUSPECT_SECONDS)
    assert worker.executor.started == ["long", "suspect"]
    stage.put("next")
    assert worker.executor.started == ["long", "suspect"]
    worker.finish("suspect")
    stage.settle()
    assert worker.executor.started == ["long", "suspect", "next"]


def test_a_suspect_that_is_lost_does_not_block_the_others(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t", concurrency=2, prefetch=4))
    stage.put("long")
    stage.publish_suspect("suspect")
    stage.advance(1.5)  # from now on, nothing else starts before the suspect
    stage.lose_to_another_consumer("t")
    stage.put("next")
    stage.advance(5)
    assert worker.executor.started == ["long", "next"]


def test_a_deleted_suspect_is_dropped(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t", concurrency=1, prefetch=4))
    stage.put("long")
    stage.publish_suspect("suspect")
    stage.delete("suspect")
    worker.finish("long")
    stage.advance(1)
    assert worker.executor.started == ["long"]
    assert stage.left() == []


def test_a_suspect_waits_for_the_proof_that_it_was_not_deleted(stage: WorkerStage) -> None:
    worker = stage.begin(ManualWorker("t", concurrency=1, prefetch=4))
    stage.put("long")
    stage.publish_suspect("suspect")
    to_client = stage.connection("consumer").to_client
    to_client.silence()
    stage.advance(NO_ANSWER_SECONDS)
    worker.finish("long")
    stage.advance(SUSPECT_SECONDS)
    assert worker.executor.started == ["long"]
    to_client.restore()
    stage.advance(SUSPECT_SECONDS)
    assert worker.executor.started == ["long", "suspect"]


# Stopping


def test_no_job_starts_after_the_worker_was_told_to_stop(stage: WorkerStage) -> None:
    """A handler returns before the stop reaches the transport's thread."""
    worker = stage.begin(ManualWorker("t", concurrency=1, prefetch=2))
    stage.put("a", "b")
    dispatcher = dispatcher_of(worker)

    def stop_and_finish(_vhost: Vhost) -> None:
        dispatcher.stop()
        worker.finish("a")

    stage.on_broker(stop_and_finish)
    stage.settle()
    assert worker.executor.started == ["a"]
    assert stage.ready() == ["b"]
