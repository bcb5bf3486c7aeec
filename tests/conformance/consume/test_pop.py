"""Popping jobs, and the verbs of a popped job."""

import logging
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime

import pika
import pytest
from pydantic import BaseModel

from rabbitdelay import (
    Client,
    ClientClosed,
    InvalidJob,
    JobSpec,
    LeaseLost,
    NotAJob,
    ReservedJob,
    RetryPolicy,
)
from rabbitdelay.aio.driver.transport import LoopTransport
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.flow import Wait
from rabbitdelay.engine.pop import channel_pool
from rabbitdelay.sync.driver.transport import ThreadTransport
from tests.conftest import ClientFactory, LookerFactory, ReceiverFactory, TopicsFactory
from tests.support.brokers.messages import publish
from tests.support.fronts import Front
from tests.support.jobs.connections import cut_pops, popper_of
from tests.support.jobs.popped_jobs import pop, take
from tests.support.patience import patience, wait_until
from tests.support.programs.script import Process

AT_ONCE = RetryPolicy(max_attempts=3, backoff=0)


# What a pop returns


def test_a_popped_job_has_the_properties_of_its_put(client: Client) -> None:
    put = client.put("t", {"order": 42}, delay=0.1, ttr=30, id="close-42")
    job = pop(client)
    assert (job.id, job.body, job.attempt, job.topic) == ("close-42", {"order": 42}, 1, "t")
    assert job.due == put.due
    assert job.due <= datetime.now(UTC)
    assert 0 <= job.lateness < patience(10)
    assert 0 < job.time_left <= 30
    assert job.message_headers["rd-token"] == put.token
    job.finish()
    assert job.time_left == 0
    assert client.pop("t") is None


@pytest.mark.usefixtures("existing_namespace")
def test_a_pop_without_a_job_returns_after_its_wait(client: Client) -> None:
    began = time.monotonic()
    assert client.pop("t", wait=0.5) is None
    assert 0.5 <= time.monotonic() - began < patience(5)
    assert client.pop(["t", "u"], max=5, wait=0.1) == []


def test_a_job_put_later_arrives_at_once(
    client: Client, make_client: ClientFactory, receive: ReceiverFactory
) -> None:
    """The client waits for the broker's delivery instead of polling, as a bare consumer does."""
    other, bare = make_client(), make_client()
    for topic in ("t", "bare"):
        other.put(topic)
    pop(client).finish()
    receiver, lateness = receive("bare"), list[float]()
    for number in range(5):
        with ThreadPoolExecutor(1) as pool:
            popped = pool.submit(pop, client)
            wait_until(lambda: has_waiting_pop(client))
            bare.put_nowait("bare", id=str(number), delay=0.2)
            other.put("t", delay=0.2)
            lateness.append(popped.result(patience(20)).lateness)
            popped.result().finish()
    receiver.wait_for(*map(str, range(5)))
    baseline = [message.lateness_ms / 1000 for message in receiver.messages[1:]]
    assert min(lateness) < max(baseline) + 0.25, (lateness, baseline)


def has_waiting_pop(client: Client) -> bool:
    """Return whether a pop of the client is consuming."""
    requests = (
        list(popper_of(client).calls)
        if client._engine.connections._sides.opened is not None
        else []
    )
    return any(request.channel is not None and request.channel._consumers for request in requests)


def test_no_topic_starves_another(client: Client, buried: LookerFactory) -> None:
    """Surplus deliveries are not bounced until the broker buries them."""
    client.put_many(JobSpec("flood", n) for n in range(400))
    client.put_many(JobSpec(topic, n) for n in range(6) for topic in ("few", "rare"))
    taken: list[str] = []
    for most in [None] * 12 + [2] * 12 + [8] * 12:
        found = client.pop(["flood", "few", "rare"], max=most or 1)
        taken += [job.topic for job in found]
        for job in found:
            assert job.redeliveries <= 1
            job.finish()
    assert (taken.count("few"), taken.count("rare")) == (6, 6)
    assert taken[:36].count("few") >= 4
    with pop(client, "flood") as job:
        assert job.redeliveries == 0
    assert buried("few").messages + buried("flood").messages == []


def test_a_pop_returns_several_jobs(client: Client) -> None:
    client.put_many(JobSpec("t", n) for n in range(25))
    client.put("u")
    first = client.pop("t", max=20, wait=patience(10))
    assert 1 < len(first) <= 20
    rest = take(client, 26 - len(first), "u", "t")
    assert sorted(job.body for job in first + rest if job.topic == "t") == list(range(25))
    for job in first + rest:
        job.finish()


def test_a_pop_of_several_jobs_waits_only_for_the_first(
    client: Client, make_client: ClientFactory, make_topics: TopicsFactory
) -> None:
    make_topics("t", "u")
    other = make_client()
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        popped: Future[list[ReservedJob]] = pool.submit(
            client.pop, ["t", "u"], max=9, wait=patience(30)
        )
        wait_until(lambda: has_waiting_pop(client))
        other.put_many(JobSpec("t", n) for n in range(3))
        found = popped.result(patience(20))
        seconds = time.monotonic() - began
        found += take(client, 3 - len(found))
    assert sorted(job.body for job in found) == [0, 1, 2]
    assert seconds < patience(15)
    for job in found:
        job.finish()


@pytest.mark.usefixtures("existing_namespace")
def test_many_popping_threads_get_each_job_once(client: Client, make_client: ClientFactory) -> None:
    clients = [client, make_client()]
    numbers: list[int] = []

    def take(one: Client) -> None:
        while (job := one.pop("t", wait=patience(1))) is not None:
            numbers.append(job.body)
            job.finish()

    with ThreadPoolExecutor(16) as pool:
        takers = [pool.submit(take, clients[n % 2]) for n in range(16)]
        client.put_many(JobSpec("t", n) for n in range(1_000))
        for taker in takers:
            taker.result(patience(60))
    assert sorted(numbers) == list(range(1_000))


# The verbs of a popped job


def test_a_released_job_comes_back_with_its_next_attempt(make_client: ClientFactory) -> None:
    client = make_client(retry=RetryPolicy(backoff=0.2))
    client.put("t", id="a")
    began = time.monotonic()
    pop(client).release()
    second = pop(client)
    assert (second.id, second.attempt) == ("a", 2)
    assert time.monotonic() - began >= 0.1
    began = time.monotonic()
    second.release(delay=0.4)
    third = pop(client)
    assert (third.attempt, third.redeliveries) == (3, 0)
    assert time.monotonic() - began >= 0.4
    assert third.lateness < 5
    third.finish()


def test_a_touch_restarts_the_ttr(client: Client) -> None:
    client.put("t", ttr=4)
    job = pop(client)
    began = time.monotonic()
    while time.monotonic() - began < 4.5:
        time.sleep(0.3)
        before = job.time_left
        job.touch()
        assert before < job.time_left <= 4
    job.finish()
    client.put("t", id="next")
    assert pop(client).id == "next"


def test_a_buried_job_is_kept_with_its_reason(client: Client, buried: LookerFactory) -> None:
    client.put("t", {"x": 1}, id="a")
    pop(client).bury("not needed")
    (message,) = buried("t").wait_for(1)
    assert (message.message_id, message.body) == ("a", b'{"x":1}')
    assert message.headers["rd-reason"] == "not needed"
    client.put("t", id="next")
    assert pop(client).id == "next"


class Order(BaseModel):
    order: int


def test_a_body_is_read_as_a_model(client: Client) -> None:
    client.put("t", {"order": 42})
    job = pop(client)
    assert job.as_model(Order) == Order(order=42)
    with pytest.raises(NotAJob, match="int"):
        job.as_model(int)
    job.finish()


def test_a_with_block_finishes_or_releases_its_job(
    make_client: ClientFactory, buried: LookerFactory
) -> None:
    """The block's exception is recorded in the copy's headers; the last attempt buries the job."""
    client = make_client(retry=AT_ONCE)
    client.put("t", id="a")
    for attempt in (1, 2, 3):
        with suppress(ValueError), pop(client) as job:
            assert job.attempt == attempt
            assert job.message_headers.get("rd-error") == (None if attempt == 1 else "no good")
            raise ValueError("no good")
    (message,) = buried("t").wait_for(1)
    assert message.headers["rd-reason"] == "attempt 3 of 3 failed"
    assert message.headers["rd-error-type"] == "ValueError"
    client.put("t", id="b")
    with pop(client) as job:
        assert job.id == "b"
    with pytest.raises(LeaseLost, match="already finished"):
        job.finish()
    client.put("t", id="c")
    assert pop(client).id == "c"


def test_a_jobs_own_max_attempts_take_precedence(
    make_client: ClientFactory, buried: LookerFactory
) -> None:
    client = make_client(retry=AT_ONCE)
    client.put("t", max_attempts=1)
    pop(client).release()
    (message,) = buried("t").wait_for(1)
    assert message.headers["rd-reason"] == "attempt 1 of 1 failed"


@pytest.mark.parametrize(
    "wrong",
    [{"topics": "a b"}, {"topics": []}, {"max": 0}, {"max": True}, {"wait": -1}, {"wait": "1"}],
)
def test_invalid_arguments_of_pop_are_refused(client: Client, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidJob):
        client.pop(**{"topics": "t", **wrong})  # type: ignore[call-overload]  # on purpose


def test_a_negative_release_delay_means_now(client: Client) -> None:
    client.put("t", id="again")
    pop(client).release(delay=-1)
    assert pop(client).attempt == 2


def test_invalid_arguments_leave_the_job_leased(client: Client) -> None:
    client.put("t")
    job = pop(client)
    with pytest.raises(InvalidJob, match="number of seconds"):
        job.release(delay="1")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InvalidJob, match="text"):
        job.bury(ValueError("x"))  # type: ignore[arg-type]  # on purpose
    job.finish()


# How a lease is lost


def test_a_job_that_is_not_settled_is_given_back_at_its_ttr(make_client: ClientFactory) -> None:
    """This does not depend on further calls of its client, and `on_lost` callbacks are called."""
    client, other = make_client(), make_client(retry=AT_ONCE)
    client.put("t", ttr=1, id="a")
    lost, began = threading.Event(), time.monotonic()  # the ttr begins within the pop
    job = pop(client)
    job.on_lost(lambda: 1 / 0)  # type: ignore[arg-type]  # its error must not matter
    job.on_lost(lost.set)
    again = pop(other)
    assert (again.id, again.attempt) == ("a", 2)
    assert time.monotonic() - began >= 1
    assert again.message_headers["rd-error-type"] == "Timeout"
    assert lost.is_set()
    assert job.time_left == 0
    with pytest.raises(LeaseLost, match="ttr"):
        job.finish()
    again.finish()
    client.put("t", id="b")
    pop(client).finish()  # the failed callback has not ended its thread


def test_a_finish_after_a_reconnect_is_refused(client: Client, make_client: ClientFactory) -> None:
    client.put("t", id="a")
    job = pop(client)
    cut_pops(client)
    again = pop(make_client())
    assert (again.id, again.attempt) == ("a", 1)
    with pytest.raises(LeaseLost, match="connection"):
        job.finish()
    with pytest.raises(LeaseLost):
        job.release()
    again.finish()
    client.put("t", id="b")
    assert pop(client).id == "b"


def test_a_waiting_pop_survives_a_lost_connection(client: Client) -> None:
    client.put("t")
    pop(client).finish()
    with ThreadPoolExecutor(1) as pool:
        popped = pool.submit(pop, client)
        wait_until(lambda: has_waiting_pop(client))
        cut_pops(client)
        client.put("t", id="a")
        assert popped.result(patience(20)).id == "a"
        popped.result().finish()


POPPER = """
import sys, time
from tests.support.fronts import front_named
front = front_named(sys.argv[1])
client = front.client(sys.argv[2], namespace=sys.argv[3], stabilise_seconds=0)
jobs = []
while len(jobs) < 5:
    jobs += client.pop("t", max=5 - len(jobs), wait=20)
print("popped", flush=True)
time.sleep(600)
"""


def test_a_process_that_dies_gives_its_jobs_back(
    front: Front, client: Client, broker_url: str, namespace: str
) -> None:
    client.put_many(JobSpec("t", n, ttr=60) for n in range(5))
    with Process(POPPER, front.name, broker_url, namespace) as process:
        process.wait_for("popped")
    found = take(client, 5)
    assert [job.attempt for job in found] == [1] * 5
    for job in found:
        job.finish()


INTERRUPTED = """
import sys, time
from tests.support.fronts import front_named
front = front_named(sys.argv[1])
client = front.client(sys.argv[2], namespace=sys.argv[3], stabilise_seconds=0)
client.pop("t")
print("waits", flush=True)
try:
    client.pop(["t", "u"], wait=None)
except KeyboardInterrupt:
    print("interrupted", flush=True)
time.sleep(600)
"""


@pytest.mark.usefixtures("existing_namespace")
def test_control_c_ends_a_waiting_pop(
    front: Front, client: Client, broker_url: str, namespace: str
) -> None:
    """The process lives on, and the interrupted pop takes none of the jobs that are put later."""
    with Process(INTERRUPTED, front.name, broker_url, namespace) as process:
        process.wait_for("waits")
        time.sleep(0.5)  # until it is in the pop; an earlier signal interrupts it as well
        process.signal(signal.SIGINT)
        process.wait_for("interrupted")
        for number in range(5):
            client.put("t", number)
            assert pop(client).body == number


def test_an_abandoned_pop_takes_no_jobs(client: Client) -> None:
    """Jobs already delivered to it, and jobs that arrive later, go to other pops."""
    client.put("t")
    pop(client).finish()
    popper = popper_of(client)
    flow = popper.pop(["t"], 2, None)
    step = next(flow)
    assert isinstance(step, Wait)
    wait_until(lambda: has_waiting_pop(client))
    client.put("t", id="a", ttr=60)
    with pytest.raises(KeyboardInterrupt):
        flow.throw(KeyboardInterrupt())
    with pytest.raises(ClientClosed):
        step.future.result(patience(10))
    job = pop(client)
    assert (job.id, job.attempt) == ("a", 1)
    job.finish()


def test_close_gives_back_leased_jobs_and_ends_pops(
    client: Client, make_client: ClientFactory
) -> None:
    closing = make_client()
    closing.put_many(JobSpec("t", n, ttr=60) for n in range(3))
    jobs = take(closing, 3)
    with ThreadPoolExecutor(1) as pool:
        popped = pool.submit(closing.pop, ["t", "u"], wait=patience(60))
        wait_until(lambda: has_waiting_pop(closing))
        began = time.monotonic()
        closing.close()
        with pytest.raises(ClientClosed):
            popped.result(patience(10))
    assert time.monotonic() - began < patience(5)
    with pytest.raises(LeaseLost):
        jobs[0].finish()
    with pytest.raises(ClientClosed):
        closing.pop("t")
    again = [pop(client) for _ in range(3)]
    assert [(job.attempt, job.redeliveries <= 2) for job in again] == [(1, True)] * 3


# The queues, and the process


def test_a_pop_of_an_undeclared_topic_returns_none(
    make_client: ClientFactory, client: Client
) -> None:
    client.put("there")
    client.put("there")
    for other in (make_client(declare=False), make_client()):
        assert other.pop("nowhere") is None
        assert pop(other, "there").topic == "there"


def test_a_waiting_pop_survives_the_deletion_of_its_queues(
    client: Client, broker_url: str, namespace: str, make_topics: TopicsFactory
) -> None:
    """The queues are declared again, the pop continues, and no stray consumer takes jobs."""
    topology = Topology(namespace)
    make_topics("t", "u", "v")
    with ThreadPoolExecutor(1) as pool:
        popped = pool.submit(client.pop, ["t", "u", "v"], wait=patience(30))
        wait_until(lambda: has_waiting_pop(client))
        with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
            channel = connection.channel()
            # Without waiting, so that both queues are gone before the pop learns of one.
            for topic in ("t", "u"):
                channel._impl.queue_delete(topology.ready_queue(topic))
            channel.queue_declare(topology.ready_queue("v"), passive=True)
        # A job put before its queue is declared again is parked as unrouted.
        wait_until(lambda: client.put("u", id="a").id == "a" and popped.done(), seconds=20)
        job = popped.result(patience(30))
        assert job is not None
        assert job.id == "a"
        job.finish()
    client.put("t", id="b")
    client.put("v", id="c")
    found = [pop(client, "t"), pop(client, "v")]
    assert [(job.id, job.redeliveries) for job in found] == [("b", 0), ("c", 0)]


def test_plain_messages_are_jobs_and_unreadable_ones_are_buried(
    client: Client,
    broker_url: str,
    namespace: str,
    buried: LookerFactory,
    make_topics: TopicsFactory,
) -> None:
    make_topics("t")
    wrong = pika.BasicProperties(headers={"rd-attempt": "one"}, message_id="wrong")
    messages = [(b"w", wrong), (b"plain", None)]
    publish(broker_url, Topology(namespace).ready_queue("t"), *messages)
    job = pop(client)
    assert (job.body, job.attempt, job.ttr.total_seconds()) == (b"plain", 1, 60)
    job.release(delay=0)
    again = pop(client)
    assert (again.id, again.attempt, again.body) == (job.id, 2, b"plain")
    again.finish()
    (message,) = buried("t").wait_for(1)
    assert message.message_id == "wrong"
    assert "rd-attempt" in message.headers["rd-reason"]


def test_a_deleted_ready_queue_is_declared_again(client: Client, broker_url: str) -> None:
    client.put("t", 1)
    pop(client).finish()
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        connection.channel().queue_delete(client.topology.ready_queue("t"))
    assert client.pop("t") is None
    client.put("t", 2)
    job = pop(client)
    assert job.body == 2
    job.finish()


def test_there_may_be_more_concurrent_pops_than_channels(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_pool, "MAX_CHANNELS", 3)
    with ThreadPoolExecutor(20) as pool:
        popped = [pool.submit(client.pop, "t", wait=patience(20)) for _ in range(20)]
        client.put_many(JobSpec("t", n) for n in range(20))
        jobs = [one.result() for one in popped]
    for job in jobs:
        assert job is not None
        job.finish()
    assert sorted(job.body for job in jobs if job) == list(range(20))


def test_a_release_whose_copy_cannot_be_published_raises(
    make_client: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job itself goes back to its queue, with an unchanged attempt."""
    client = make_client()
    client.put("t", ttr=60)
    job = pop(client)
    monkeypatch.setattr(client._engine.connections._publishers.opened, "_closed", True)
    with pytest.raises(ClientClosed):
        job.release(delay=3600)
    monkeypatch.setattr(client._engine.connections._publishers.opened, "_closed", False)
    again = pop(client)
    assert (again.id, again.attempt) == (job.id, 1)
    again.finish()


def test_pops_leave_no_state_behind(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """After hundreds of pops the client has no leases or deadlines, and few channels."""
    caplog.set_level(logging.WARNING, "rabbitdelay")
    client.put_many(JobSpec("t", n, ttr=20) for n in range(500))
    for _ in range(250):
        for job in client.pop(["t", "u"], max=2):
            job.finish()
        client.pop("u")
    popper = popper_of(client)
    consumer = popper.consumer
    assert len(consumer.settlement.leases) == 0
    assert len(consumer.channels) <= 5  # two of them are for the log of deletes
    assert not popper.calls
    transport = consumer._connector.transport
    assert isinstance(transport, ThreadTransport | LoopTransport)
    assert timers(transport) < 1_500
    assert [record for record in caplog.records if record.name == "rabbitdelay"] == []


def timers(transport: ThreadTransport | LoopTransport) -> int:
    """Return the number of timers set on the loop of a wire."""
    if isinstance(transport, ThreadTransport):
        return len(transport._loop._timer._timeout_heap or ())
    return len(transport._loop._scheduled)  # type: ignore[attr-defined]  # on purpose
