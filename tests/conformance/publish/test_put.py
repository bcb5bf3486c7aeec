"""Put: a delayed job waits in RabbitMQ and arrives on time."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pika
import pytest

from rabbitdelay import (
    Client,
    ClientClosed,
    InvalidJob,
    Job,
    JobSpec,
    OutcomeUnknown,
    PutManyFailed,
)
from rabbitdelay.core.jobs import ids as identity
from rabbitdelay.private_broker.machine.ports import pick_free
from tests.conftest import ClientFactory, ReceiverFactory
from tests.support.fronts import Front
from tests.support.patience import patience


def test_a_job_arrives_once_and_unchanged_after_its_delay(
    client: Client, receive: ReceiverFactory
) -> None:
    job = client.put("orderclose", {"order": 42}, delay=0.35, ttr=5, id="orderclose-42")
    (message,) = receive("orderclose").wait_for_count(1)
    assert (message.id, json.loads(message.body)) == ("orderclose-42", {"order": 42})
    assert message.lateness_ms >= 0
    assert message.headers["rd-due"] == job.due_ms == job.put_ms + 350
    assert message.headers["rd-ttr"] == 5000
    assert message.headers["rd-token"] == job.token
    assert message.properties.delivery_mode == 2
    assert message.properties.content_type == "application/json"


@pytest.mark.parametrize("delay", [0, 0.01, 0.09, 0.1, 0.99, 1, 1.11, timedelta(seconds=2)])
def test_delayed_jobs_are_neither_early_nor_lost(
    client: Client, receive: ReceiverFactory, delay: float | timedelta
) -> None:
    job = client.put("t", b"raw bytes", delay=delay)
    receiver = receive("t")
    receiver.wait_for(job.id)
    (message,) = receiver.messages
    assert message.lateness_ms >= 0
    assert message.body == b"raw bytes"


@pytest.mark.parametrize("delay", [-1, -0.001, timedelta(days=-400)])
def test_a_negative_delay_means_now(
    client: Client, receive: ReceiverFactory, delay: float | timedelta
) -> None:
    job = client.put("t", delay=delay)
    assert job.due_ms == job.put_ms
    assert client.put_many([JobSpec("t", delay=delay, id="one of many")]) == 1
    receive("t").wait_for(job.id, "one of many")
    moved = client.reschedule(job, delay=delay)
    assert moved.due_ms == moved.put_ms


def test_a_job_is_put_for_a_time_and_a_past_time_means_now(
    client: Client, receive: ReceiverFactory
) -> None:
    soon = client.put("t", at=datetime.now(UTC) + timedelta(seconds=2), id="soon")
    past = client.put("t", at=datetime(2020, 1, 1, tzinfo=UTC), id="past")
    receiver = receive("t")
    receiver.wait_for("soon", "past")
    assert [message.id for message in receiver.messages] == ["past", "soon"]
    assert all(message.lateness_ms >= 0 for message in receiver.messages)
    assert past.due_ms == past.put_ms
    assert soon.due > past.due


def test_topics_do_not_get_each_others_jobs(client: Client, receive: ReceiverFactory) -> None:
    """The topics end alike, have empty words, or look like digits."""
    topics = ["b", "a.b", "x", "x.x", ".", "..", "a.", ".a", "0.0", "0"]
    for topic in topics:
        client.put(topic, topic, delay=0.02)
        client.put(topic, topic)
    for topic in topics:
        messages = receive(topic).wait_for_count(2)
        assert {message.body.decode() for message in messages} == {topic}
        assert len(messages) == 2


def test_put_many_accepts_a_generator(client: Client, receive: ReceiverFactory) -> None:
    taken: list[int] = []
    confirmed: list[Job] = []

    def specs() -> Iterator[JobSpec]:
        for number in range(3_000):
            taken.append(number)
            yield JobSpec("mail", {"n": number}, delay=0.2)

    assert client.put_many(specs(), on_confirmed=confirmed.append) == 3_000
    assert len(taken) == len({job.id for job in confirmed}) == 3_000
    receiver = receive("mail")
    receiver.wait_for(*(job.id for job in confirmed), seconds=30)
    assert set(receiver.ids.values()) == {1}
    assert min(message.lateness_ms for message in receiver.messages) >= 0


def test_put_many_keeps_a_bounded_window(make_client: ClientFactory) -> None:
    """The generator is never read further ahead of the confirms than the window."""
    client = make_client(window=50)
    confirmed = 0
    furthest = 0

    def note(_job: Job) -> None:
        nonlocal confirmed
        confirmed += 1

    def specs() -> Iterator[JobSpec]:
        nonlocal furthest
        for number in range(1_000):
            furthest = max(furthest, number - confirmed)
            yield JobSpec("t", number, delay=60)

    assert client.put_many(specs(), on_confirmed=note) == 1_000
    assert furthest <= 50


def test_put_many_reports_the_confirmed_jobs(client: Client) -> None:
    specs = [JobSpec("t", delay=60) for _ in range(10)]
    specs[7] = JobSpec("not a topic", delay=60)
    with pytest.raises(PutManyFailed, match=r"position 7.*may only contain") as caught:
        client.put_many(specs)
    assert (caught.value.confirmed, caught.value.unconfirmed, caught.value.taken) == (7, (7,), 8)
    assert isinstance(caught.value.__cause__, InvalidJob)


def test_put_many_refuses_items_that_are_not_job_specs(client: Client) -> None:
    with pytest.raises(PutManyFailed, match="must be a JobSpec, not tuple") as caught:
        client.put_many([JobSpec("t", delay=60), ("t", 2)])  # type: ignore[list-item]  # on purpose
    assert (caught.value.confirmed, caught.value.unconfirmed) == (1, (1,))


def test_put_many_reports_an_error_of_the_generator(client: Client) -> None:
    def specs() -> Iterator[JobSpec]:
        yield JobSpec("t", delay=60)
        raise ZeroDivisionError

    with pytest.raises(PutManyFailed) as caught:
        client.put_many(specs())
    assert (caught.value.confirmed, caught.value.taken) == (1, 2)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_error_in_on_confirmed_reaches_the_caller(client: Client) -> None:
    def break_down(_job: Job) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client.put_many((JobSpec("t", delay=60) for _ in range(10)), on_confirmed=break_down)
    assert client.put("t", delay=60).topic == "t"


def test_puts_during_a_close_by_another_thread_never_hang(make_client: ClientFactory) -> None:
    client = make_client()
    client.put("t")
    futures: list[Future[Job]] = []

    def put_until_closed() -> None:
        with suppress(ClientClosed):
            while True:
                futures.append(client.put_nowait("t"))

    threads = [threading.Thread(target=put_until_closed) for _ in range(4)]
    for thread in threads:
        thread.start()
    client.close()
    for thread in threads:
        thread.join(patience(10))
    for future in futures:
        assert isinstance(future.exception(patience(10)), OutcomeUnknown | None)


def test_put_many_of_no_jobs_returns_zero(client: Client) -> None:
    assert client.put_many([]) == 0


def test_put_nowait_returns_a_future(client: Client, receive: ReceiverFactory) -> None:
    futures: list[Future[Job]] = [client.put_nowait("t", n, delay=0.05) for n in range(100)]
    jobs = [future.result(patience(10)) for future in futures]
    assert not futures[0].cancel()
    receive("t").wait_for(*(job.id for job in jobs))


def test_many_threads_share_one_client(client: Client, receive: ReceiverFactory) -> None:
    ids: list[str] = []

    def put_some(thread: int) -> None:
        ids.extend(client.put("t", delay=0.1, id=f"{thread}-{n}").id for n in range(25))

    threads = [threading.Thread(target=put_some, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(30))
    assert len(set(ids)) == 400
    receive("t").wait_for(*ids)


def test_a_generated_id_carries_the_due_time(client: Client) -> None:
    job = client.put("t", delay=3600)
    assert identity.due_ms(job.id) == job.due_ms


def test_the_same_id_may_be_put_twice(client: Client, receive: ReceiverFactory) -> None:
    first, second = client.put("t", id="same"), client.put("t", id="same")
    assert first.token != second.token
    assert receive("t").wait_for_count(2)[0].id == "same"


def test_a_large_body_travels_in_many_frames(
    make_client: ClientFactory, receive: ReceiverFactory
) -> None:
    body = bytes(range(256)) * 8 * 1024  # 2 MiB in sixteen frames
    make_client(max_body_bytes=4 * 1024 * 1024).put("t", body, delay=0.01)
    assert receive("t").wait_for_count(1)[0].body == body


def test_a_namespace_with_classic_queues_works(
    make_client: ClientFactory, receive: ReceiverFactory
) -> None:
    job = make_client(queue_type="classic").put("t", delay=0.25)
    assert receive("t").wait_for_count(1)[0].id == job.id


def test_a_delay_of_years_is_accepted(client: Client, broker_url: str, namespace: str) -> None:
    client.put("t", delay=timedelta(days=9 * 365))
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        declared = connection.channel().queue_declare(f"{namespace}.v1.hold.3240d", passive=True)
    assert declared.method.queue == f"{namespace}.v1.hold.3240d"


def test_a_client_without_a_url_finds_the_broker(
    front: Front, broker_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RABBITDELAY_URL", broker_url)
    with front.client(namespace=namespace, stabilise_seconds=0) as client:
        assert client.put("t").topic == "t"


def test_a_client_tries_several_nodes(make_client: ClientFactory, broker_url: str) -> None:
    """The first node that answers is used."""
    unused = f"amqp://127.0.0.1:{pick_free(1)[0]}"
    assert make_client(f"{unused},{broker_url}").put("t").topic == "t"


def test_a_closed_client_refuses_puts(make_client: ClientFactory) -> None:
    client = make_client()
    client.close()
    client.close()
    with pytest.raises(ClientClosed):
        client.put("t")


def test_close_flushes_puts_in_flight(make_client: ClientFactory, receive: ReceiverFactory) -> None:
    client = make_client()
    futures = [client.put_nowait("t", n) for n in range(2_000)]
    client.close()
    assert all(future.done() and not future.exception() for future in futures)
    receive("t").wait_for_count(2_000)


def test_a_client_without_references_still_flushes(
    front: Front, broker_url: str, namespace: str, receive: ReceiverFactory
) -> None:
    def put_and_forget() -> Future[Job]:
        client = front.client(broker_url, namespace=namespace, stabilise_seconds=0)
        return client.put_nowait("t")

    job = put_and_forget().result(patience(10))
    receive("t").wait_for(job.id)


def test_an_unknown_option_is_refused(client: Client) -> None:
    with pytest.raises(TypeError, match=r"unknown option 'delai'; did you mean 'delay'\?"):
        client.put("t", delai=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"unknown option 'priority'$"):
        client.replace("t", id="one", priority=3)  # type: ignore[call-arg]
