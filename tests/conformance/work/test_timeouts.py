"""A job whose TTR has passed is ready again at once, or after the topic's `timeout_delay`."""

import threading
import time
from itertools import pairwise

import pytest

from rabbitdelay import Client, ReservedJob, TimedOut
from tests.conftest import ClientFactory, WorkerFactory
from tests.support.fronts import Front
from tests.support.jobs.connections import dispatcher_of
from tests.support.jobs.popped_jobs import pop
from tests.support.jobs.worker_thread import handed_out_at, working
from tests.support.patience import patience, wait_until
from tests.support.stalls import Stalls

TTR_SECONDS = 2
TIMEOUT_DELAY_SECONDS = 2
AT_ONCE_SECONDS = 1
"""Time in which a job is ready again. What the machine needed beyond is measured."""


def test_a_worker_gets_a_job_again_when_its_ttr_has_passed(
    client: Client, make_worker: WorkerFactory
) -> None:
    """A timeout skips the backoff and adds only `timeout_delay`."""
    worker, began, hang = make_worker(), dict[tuple[str, int], float](), threading.Event()

    def note(job: ReservedJob) -> None:
        began[job.topic, job.attempt] = handed_out_at(job, TTR_SECONDS)
        hang.wait(patience(30))

    worker.handler("at-once", ttr=TTR_SECONDS, backoff=30)(note)
    worker.handler("later", ttr=TTR_SECONDS, timeout_delay=TIMEOUT_DELAY_SECONDS)(note)
    client.put("at-once")
    client.put("later")
    with Stalls() as stalls, working(worker):
        round_trip = longest_round_trip(client)
        wait_until(lambda: {("at-once", 3), ("later", 2)} <= began.keys(), seconds=30)
        hang.set()
    gaps = [later - earlier for earlier, later in pairwise(_times(began, "at-once"))]
    assert min(gaps) >= TTR_SECONDS - 0.2, gaps
    assert min(gaps) < TTR_SECONDS + AT_ONCE_SECONDS + stalls.longest_seconds + round_trip, gaps
    first, second = _times(began, "later")[:2]
    assert second - first >= TTR_SECONDS + TIMEOUT_DELAY_SECONDS - 0.2


def test_a_return_after_the_ttr_is_reported_as_a_timeout_though_the_worker_noticed_it_first(
    client: Client, make_worker: WorkerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker's I/O is kept busy at the deadline, so the handler returns before its timer."""
    worker, told, may_go_on = make_worker(), list[BaseException](), threading.Event()

    def keep_busy() -> None:
        may_go_on.wait(patience(10))

    def hang(job: ReservedJob) -> None:
        dispatcher_of(worker).consumer.call(keep_busy)
        wait_until(lambda: job.time_left == 0)

    worker.handler("t", ttr=1, max_attempts=1)(hang)
    worker.on_error(lambda _job, error: told.append(error))
    job = client.put("t")
    with working(worker):
        wait_until(lambda: "finished too late" in caplog.text)
        may_go_on.set()
        wait_until(lambda: told)
    assert [type(error) for error in told] == [TimedOut]
    (record,) = [one for one in caplog.records if getattr(one, "event", None) == "buried"]
    assert record.job_id == job.id  # type: ignore[attr-defined]


def test_a_pop_gets_a_job_again_when_its_ttr_has_passed(make_client: ClientFactory) -> None:
    """The first client that popped the job does not call the client again."""
    first, other, gaps = make_client(), make_client(), list[float]()
    with Stalls() as stalls:
        round_trip = longest_round_trip(other)
        for _ in range(2):
            first.put("t", ttr=TTR_SECONDS)
            began = handed_out_at(pop(first), TTR_SECONDS)
            again = pop(other)
            gaps.append(handed_out_at(again, TTR_SECONDS) - began)
            assert again.attempt == 2
            again.finish()
    assert min(gaps) >= TTR_SECONDS - 0.2, gaps
    assert min(gaps) < TTR_SECONDS + AT_ONCE_SECONDS + stalls.longest_seconds + round_trip, gaps


def longest_round_trip(client: Client) -> float:
    """Return the longest time that a job needed from its put to its pop, of several jobs."""
    seconds = list[float]()
    for _ in range(5):
        began = time.monotonic()
        client.put("baseline")
        pop(client, "baseline").finish()
        seconds.append(time.monotonic() - began)
    return max(seconds)


def test_a_return_after_the_ttr_does_not_finish_a_job_that_was_lost_with_its_connection(
    front: Front, broker_url: str, client: Client, make_worker: WorkerFactory
) -> None:
    """The broker redelivers the job to the same worker, which must not treat it as finished."""
    runs, may_return, has_returned = list[float](), threading.Event(), threading.Event()

    def hang(job: ReservedJob) -> None:
        runs.append(time.monotonic() + job.time_left)
        may_return.wait(patience(30))
        has_returned.set()

    client.put("t", ttr=TTR_SECONDS)
    with front.back_end.proxy(broker_url) as proxy:
        worker = make_worker(proxy.url)
        worker.handler("t")(hang)
        with working(worker):
            wait_until(lambda: runs, seconds=30)
            proxy.silence()  # prevents a reconnect before the handler returns
            proxy.cut()
            wait_until(lambda: time.monotonic() > runs[0] + 0.5)
            may_return.set()
            assert has_returned.wait(patience(10))
            wait_until(lambda: worker.stats().running == 0)
            proxy.restore()
            wait_until(lambda: len(runs) == 2, seconds=30, what="the job runs again")


def _times(began: dict[tuple[str, int], float], topic: str) -> list[float]:
    return [at for (of_topic, _), at in sorted(began.items()) if of_topic == topic]
