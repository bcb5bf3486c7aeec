"""A worker with `max_jobs` runs that many handlers, and takes no jobs that it will not run."""

from tests.support.memory.manual_worker import ManualWorker, WorkerStage


def limited(most: int, *, prefetch: int = 1) -> ManualWorker:
    return ManualWorker("t", run={"max_jobs": most}, concurrency=1, prefetch=prefetch)


def test_a_worker_ends_after_its_last_job(stage: WorkerStage) -> None:
    worker = stage.begin(limited(2, prefetch=2))
    stage.put("a", "b", "c")
    worker.finish("a")
    stage.settle()
    assert worker.runs_ended == 0
    worker.finish("b")
    stage.advance(1)
    assert worker.runs_ended == 1
    assert (worker.executor.started, stage.ready()) == (["a", "b"], ["c"])


def test_a_worker_does_not_take_more_jobs_than_it_may_run(stage: WorkerStage) -> None:
    """RabbitMQ 3.10 counts returned deliveries, so many such workers would bury the others."""
    worker = limited(1, prefetch=5)
    stage.put("a", "b", "c")
    stage.begin(worker)
    assert stage.ready() == ["b", "c"]
    worker.finish("a")
    stage.advance(1)
    assert stage.returns() == [0, 0]


def test_another_job_takes_the_place_of_a_deleted_one(stage: WorkerStage) -> None:
    worker = stage.begin(limited(2, prefetch=2))
    stage.put("a", "b", "c")
    stage.delete("b")
    worker.finish("a")
    stage.settle()
    assert worker.executor.started == ["a", "c"]


def test_another_job_takes_the_place_of_one_lost_with_its_connection(stage: WorkerStage) -> None:
    worker = stage.begin(limited(2, prefetch=2))
    stage.put("a", "b")
    stage.lose_to_another_consumer()
    stage.put("c")
    stage.advance(5)
    worker.executor.end("a")
    stage.settle()
    assert worker.executor.started == ["a", "c"]


def test_another_job_takes_the_place_of_one_lost_with_its_channel(stage: WorkerStage) -> None:
    worker = stage.begin(limited(3, prefetch=3))
    stage.put("a", "b", "c")
    stage.close_channel_of(worker, "a")
    stage.advance(5)
    worker.finish("a")
    stage.settle()
    worker.finish("b")
    stage.settle()
    assert worker.executor.started == ["a", "b", "c"]


def test_another_job_takes_the_place_of_one_returned_by_a_pause(stage: WorkerStage) -> None:
    worker = stage.begin(limited(2, prefetch=2))
    stage.put("a", "b")
    stage.pause()
    worker.finish("a")
    stage.resume()
    assert worker.executor.started == ["a", "b"]


def test_a_redelivery_of_a_running_job_does_not_count(stage: WorkerStage) -> None:
    worker = stage.begin(limited(2, prefetch=2))
    stage.put("a")
    stage.connection("consumer").cut()
    stage.advance(5)
    stage.put("b")
    worker.finish("a")
    stage.settle()
    assert worker.executor.started == ["a", "b"]


def test_a_job_that_timed_out_counts(stage: WorkerStage) -> None:
    worker = ManualWorker(run={"max_jobs": 1}).handle("t", ttr=10, timeout_delay=60)
    stage.begin(worker)
    stage.put("a")
    stage.advance(11)
    assert (worker.executor.abandoned, worker.runs_ended) == (["a"], 1)


def test_a_lost_job_that_timed_out_counts(stage: WorkerStage) -> None:
    worker = ManualWorker(run={"max_jobs": 1}).handle("t", ttr=30)
    stage.begin(worker)
    stage.put("a")
    stage.lose_to_another_consumer()
    stage.advance(31)
    assert (worker.executor.abandoned, worker.runs_ended) == (["a"], 1)
