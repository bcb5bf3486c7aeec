"""Faults of consumers: killed and suspended processes, a killed broker, malformed messages."""

import json
import logging
import random
import signal
import threading
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from struct import pack
from typing import Any
from urllib.request import Request, urlopen

import pika
import pytest
from pydantic import BaseModel

from rabbitdelay import Bury, Client, Job, JobSpec
from rabbitdelay.core.amqp import encode, field_table
from rabbitdelay.core.amqp.field_table import Encoded, ScaledInteger, Timestamp
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.settle.republish import read_grave
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import OutcomeUnknown, PermissionRefused
from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.sync.worker import Worker
from tests.conftest import LookerFactory, TopicsFactory, WorkerFactory
from tests.support.brokers.messages import publish_frames
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.fronts import Front
from tests.support.jobs.connections import cut_worker, dispatcher_of, worker_connector
from tests.support.jobs.deletes import deletes_flow, noting
from tests.support.jobs.looker import Looker
from tests.support.jobs.popped_jobs import drained
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until
from tests.support.programs.script import Process

WORKER = """
import logging, os, sys, time
from tests.support.fronts import front_named
def say(*words):
    os.write(1, f"{' '.join(words)}\\n".encode())  # one piece, whatever other threads print
logging.basicConfig(level=logging.WARNING, format="%(name)s %(message)s")
for name in ("pika", "aio_pika", "aiormq"):
    logging.getLogger(name).setLevel(logging.CRITICAL)
name, url, namespace, concurrency, stabilise_seconds = sys.argv[1:]
front = front_named(name)
worker = front.worker(
    url,
    namespace=namespace,
    concurrency=int(concurrency),
    stabilise_seconds=float(stabilise_seconds),
)
@worker.handler("t", ttr=60, backoff=0)
def work(job):
    say("began", job.id)
    for _ in range(job.body):  # in slices: time that the process stands still does not count
        time.sleep(0.1)
    say("ended", job.id)
worker.after(lambda job, _: say("finished", job.id))
front.run(worker)
"""


def test_a_killed_worker_does_not_lose_jobs(
    front: Front, client: Client, broker_url: str, namespace: str
) -> None:
    client.put_many(JobSpec("t", 600, id=str(n)) for n in range(50))
    with Process(WORKER, front.name, broker_url, namespace, "50", "0") as process:
        process.wait_for("began", count=50)
        process.signal(signal.SIGKILL)
        process.wait()
    found: dict[str, int] = {}
    wait_until(lambda: found.update(finish_ready_jobs(client)) or len(found) == 50, seconds=10)
    assert set(found.values()) == {1}
    assert drained(client) == []


def finish_ready_jobs(client: Client) -> dict[str, int]:
    """Pop and finish the ready jobs; return their attempts by id."""
    jobs = client.pop("t", max=50, wait=1)
    for job in jobs:
        job.finish()
    return {job.id: job.attempt for job in jobs}


def test_a_suspended_worker_is_replaced(
    front: Front, client: Client, broker_url: str, namespace: str, make_worker: WorkerFactory
) -> None:
    """After its heartbeat timeout its jobs run elsewhere, and its late results are refused."""
    client.put_many(JobSpec("t", 30, id=str(n)) for n in range(5))
    seen: list[str] = []
    other = make_worker()
    other.handler("t")(lambda job: seen.append(job.id))
    with Process(WORKER, front.name, f"{broker_url}?heartbeat=1", namespace, "5", "0") as process:
        process.wait_for("began", count=5)
        process.signal(signal.SIGSTOP)
        with working(other):
            wait_until(lambda: len(seen) == 5, seconds=20, what=str(seen))
            process.signal(signal.SIGCONT)
            wait_until(
                lambda: count_refused_results(process) == 5, seconds=20, what=str(process.errors)
            )
        assert process.count("finished") == 0
    assert sorted(seen) == ["0", "1", "2", "3", "4"]


def count_refused_results(process: Process) -> int:
    return sum("too late" in line for line in list(process.errors))


def test_jobs_run_once_when_connections_are_cut_under_load(
    client: Client, make_worker: WorkerFactory
) -> None:
    """One worker runs each job once, regardless of how often its connection is lost."""
    worker, seen = make_worker(concurrency=8), Counter[str]()

    @worker.handler("t")
    def work(job: Job) -> None:
        seen[job.id] += 1
        time.sleep(0.005)

    client.put_many(JobSpec("t", n, id=str(n)) for n in range(1_500))
    with working(worker):
        for count in (200, 500, 800, 1_100):
            wait_until(lambda least=count: len(seen) >= least, seconds=20)  # type: ignore[misc]
            cut_worker(worker)
        wait_until(lambda: len(seen) == 1_500, seconds=20)
        wait_until(lambda: worker.stats().running == 0)
    assert set(seen.values()) == {1}
    assert drained(client) == []


def test_a_subscription_without_a_connection_is_made_after_the_reconnect(
    client: Client, make_worker: WorkerFactory
) -> None:
    """A pause may end during the outage; the topic is consumed after the reconnect all the same."""
    worker, seen, tried = make_worker(), list[str](), list[bool]()
    worker.handler("t")(lambda job: seen.append(job.id))
    client.put("t", id="before")
    with working(worker):
        wait_until(lambda: seen == ["before"])
        dispatcher = dispatcher_of(worker)
        log_reader = dispatcher.log_reader

        def try_again() -> None:
            if not dispatcher.consumer.is_connected:
                tried.append(True)
                log_reader._record_reader.begin()

        log_reader.status.watch(try_again)
        cut_worker(worker)
        wait_until(lambda: tried)
        client.put("t", id="after")
        wait_until(lambda: seen == ["before", "after"], seconds=20, what=log_reader.status.text)


@pytest.mark.timeout(180)
def test_every_confirmed_job_runs_when_the_broker_is_killed_under_load(
    front: Front,
    breakable_broker: PrivateBroker,
    namespace: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two workers at 500 jobs/s: every job whose put returned runs at least once.

    A job that finishes while there is no connection need not run again: it is acknowledged when it
    is redelivered to the worker that ran it.
    """
    broker = breakable_broker
    arguments = (front.name, broker.url, namespace, "60", "3")
    with (
        front.client(broker.url, namespace=namespace, timeout=patience(20)) as client,
        Process(WORKER, *arguments) as one,
        Process(WORKER, *arguments) as two,
    ):
        client.put_many(
            JobSpec(topic, 1) for topic in ("t", "u", "v")
        )  # their queues are stable afterwards
        assert client.pop("u") is not None  # the broker requeues this job after the kill
        client.pop("v").finish()  # type: ignore[union-attr]
        popped = ThreadPoolExecutor(1).submit(client.pop, "v", wait=patience(90))
        putting = Rated(client, per_second=500)
        wait_until(lambda: one.count("finished") > 100 and two.count("finished") > 100, seconds=30)
        broker.nodes[0].kill()
        broker.start()
        wait_until(lambda: len(putting.futures) > 500 + putting.at_restart(), seconds=30)
        confirmed = {job.id for job in putting.stop()}
        client.put("v")
        assert popped.result(patience(30)) is not None, "the pop waited through the outage"
        assert client.pop("u", wait=patience(10)) is not None
        wait_until(lambda: confirmed <= ended(one, two).keys(), seconds=40)
        wait_until(lambda: left_over(broker.url, Topology(namespace)) == 0)
        began = one.second_words("began") + two.second_words("began")
    twice = sum(count > 1 for count in began.values())
    with capsys.disabled():
        print(f" {len(confirmed)} jobs over a broker's death: {twice} run twice", end=" ")  # noqa: T201
    assert len(confirmed) > 1_000


def ended(*processes: Process) -> Counter[str]:
    """Return the ids of the jobs that ended, with their counts."""
    return sum((process.second_words("ended") for process in processes), Counter[str]())


def left_over(url: str, topology: Topology) -> int:
    """Return the number of messages left in the topic's ready and buried queues."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        queues = topology.ready_queue("t"), topology.buried_queue("t")
        return sum(
            channel.queue_declare(name, passive=True).method.message_count for name in queues
        )


class Rated:
    """A thread that puts jobs at a fixed rate and records the results."""

    def __init__(self, client: Client, per_second: int) -> None:
        self.futures: list[Future[Job]] = []
        self._client = client
        self._pause = 1 / per_second
        self._restart: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._put)
        self._thread.start()

    def at_restart(self) -> int:
        """Return the number of jobs that were put when this was first called."""
        if self._restart is None:
            self._restart = len(self.futures)
        return self._restart

    def stop(self) -> list[Job]:
        """Stop, and return the confirmed jobs."""
        self._stop.set()
        self._thread.join(patience(70))
        return list(self._confirmed())

    def _confirmed(self) -> Iterator[Job]:
        for future in self.futures:
            try:
                yield future.result(patience(70))
            except OutcomeUnknown:
                continue

    def _put(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self.futures.append(self._client.put_nowait("t", 1))
            due += self._pause
            self._stop.wait(max(0.0, due - time.monotonic()))


SUPERVISOR = """
import os, signal, sys, time
from tests.support.fronts import front_named
def run():
    front = front_named(sys.argv[1])
    worker = front.worker(sys.argv[2], namespace=sys.argv[3], concurrency=10, stabilise_seconds=0)
    @worker.handler("t", backoff=0)
    def work(job):
        if job.id == "culprit":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)
        os.write(1, f"ran {job.id}\\n".encode())
    front.run(worker, until_empty=True)
while True:
    child = os.fork()
    if child == 0:
        run()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) == 0:
        break
    os.write(1, b"died\\n")
print("ended", flush=True)
"""


@pytest.mark.timeout(120)
def test_only_the_job_that_kills_its_process_is_buried(
    front: Front, client: Client, broker_url: str, namespace: str, buried: LookerFactory
) -> None:
    """The broker's delivery count buries it; jobs delivered together with it are not affected."""
    client.put_many(JobSpec("t", id=f"before-{n}") for n in range(15))
    client.put("t", id="culprit")
    client.put_many(JobSpec("t", id=f"after-{n}") for n in range(15))
    with Process(SUPERVISOR, front.name, broker_url, namespace) as process:
        process.wait_for("ended", seconds=90)
    (message,) = buried("t").wait_for(1)
    assert message.message_id == "culprit"
    assert "died" in read_grave(message.headers).reason
    ran = process.second_words("ran")
    names = {f"{where}-{n}" for where in ("before", "after") for n in range(15)}
    assert set(ran) == names
    assert process.count("died") == 21
    assert len(buried("t").messages) == 0


# Malformed messages


class Order(BaseModel):
    order: int


def handle_orders(worker: Worker) -> list[int]:
    """Register a handler of orders; return the list in which it records them."""
    done: list[int] = []

    @worker.handler("t", ttr=60)
    def work(order: Order) -> None:
        done.append(order.order)

    return done


def test_a_thousand_malformed_messages_are_buried(
    *,
    client: Client,
    broker_url: str,
    namespace: str,
    make_worker: WorkerFactory,
    buried: LookerFactory,
    make_topics: TopicsFactory,
) -> None:
    """Each is buried with its reason. The worker does not die or reconnect for any of them."""
    make_topics("t")
    draw = random.Random(20260101)
    bad = [fuzzed(draw, number) for number in range(1_000)]
    queue = Topology(namespace).ready_queue("t")
    for start in range(0, 1_000, 20):
        publish_frames(broker_url, queue, bad[start : start + 20])
        client.put("t", {"order": start // 20})
    worker = make_worker()
    done = handle_orders(worker)
    with working(worker):
        wait_until(lambda: len(done) == 50, seconds=30, what=str(len(done)))
        graves = buried("t").wait_for(1_000, seconds=30)
        assert worker_connector(worker)._attempts == 0
        assert worker.client._engine.connections._publishers.opened is not None
        assert worker.client._engine.connections._publishers.opened._connector._attempts == 0
    assert sorted(done) == list(range(50))
    assert len(graves) == 1_000
    assert all(read_grave(grave.headers).reason != "unknown" for grave in graves)
    assert sum(isinstance(grave.headers.get("rd-reason"), str) for grave in graves) == 1_000
    assert drained(client) == []


def test_a_thousand_bad_messages_are_listed_kicked_and_dropped(
    *,
    client: Client,
    broker_url: str,
    namespace: str,
    make_topics: TopicsFactory,
) -> None:
    """Their headers are kept byte for byte."""
    make_topics("t")
    draw = random.Random(20260102)
    bad = [with_number(fuzzed(draw, number), number) for number in range(1_000)]
    topology, jobs = Topology(namespace), client.buried("t")
    for start in range(0, 1_000, 20):
        publish_frames(broker_url, topology.buried_queue("t"), bad[start : start + 20])
    wait_until(lambda: jobs.count() == 1_000)
    found = list(jobs.list())
    assert sorted(job.headers["number"] for job in found) == list(range(1_000))
    shown = jobs.show("id")
    assert len(shown) == sum(message.message_id == "id" for message in bad)
    assert jobs.kick(where=lambda job: job.headers["number"] % 2 == 0).sent == 500
    assert client.unrouted().count() == 0
    with (
        Client(broker_url, namespace=namespace, declare=False) as looking,
        Looker(looking, topology.ready_queue("t")) as ready,
    ):
        ready.wait_for(500, seconds=30)
        for message in ready.originals:
            number = field_table.decode_each(message.headers)["number"]
            assert theirs(message.headers) == theirs(split(bad[number]))
    assert jobs.drop() == 500
    assert jobs.count() == 0


def with_number(message: Message, number: int) -> Message:
    """Return the same message with its number in a header."""
    return replace(message, headers={**message.headers, "number": number})


def split(message: Message) -> dict[str, Encoded]:
    """Return the headers of a message as bytes."""
    encoded = field_table.encode(message.headers)
    return field_table.split(encoded, 0, len(encoded))


def theirs(headers: Mapping[str, Encoded]) -> dict[str, Encoded]:
    """Return the headers that neither a kick nor the broker may change."""
    changed = ("rd-attempt", "rd-due", "rd-known", "CC")
    return {
        name: value
        for name, value in headers.items()
        if name not in changed and not name.startswith("x-")
    }


NUMBERS = ("rd-put", "rd-due", "rd-ttr", "rd-attempt", "rd-max-attempts", "rd-backoff")
VALUES: tuple[Any, ...] = (
    *("", "12", "x" * 300, "\udcff\udcfe", True, None, b"\x00\xff", 1.5, 1e300),
    *(-1, 0, 2**63 - 1, -(2**63), [], [[1], {"a": [None]}], {}, {"a": {"b": 1}}),
    *(Timestamp(0), Timestamp(2**64 - 1), ScaledInteger(2, -5), ScaledInteger(255, 2**31 - 1)),
)
BODIES = (b"", b"{", b"null", b"[" * 5_000, b"\xff\xfe", b'{"order": "x"}', b"NaN", b"0" * 70_000)
KINDS = ("application/json", "text/plain", "", "\udcff", "application/json; x=\udcff", None)
NAMES = ("", "id", "\udcff\udcfe", "a\x00b", "i" * 255, "\u2028", None)


def fuzzed(draw: random.Random, number: int) -> Message:
    """Return a message that is not an order and has malformed headers and properties."""
    headers = {draw.choice(NUMBERS): draw.choice(VALUES) for _ in range(draw.randrange(4))}
    headers |= {
        draw.choice(("", "rd-token", "rd-version", "rd-callback", "x")): draw.choice(VALUES)
    }
    if number % 3 == 0:
        headers["x-death"] = foreign_death(draw)
    if number % 5 == 0:
        headers |= {"x-delivery-count": draw.choice(VALUES), "CC": draw.choice(([], ["x"]))}
    return Message(
        bytes(1024 * 1024) if number % 200 == 0 else draw.choice(BODIES),
        headers,
        draw.choice(NAMES),
        draw.choice(KINDS),
        draw.choice((None, 0, 2**64 - 1)),
        draw.choice((None, None, None, "missing.queue", "\udcff")),
        draw.choice((None, "", "\udcff")),
        draw.choice((None, "gzip")),
        draw.choice((None, 0, 255)),
        draw.choice((None, "\udcff")),
        draw.choice((None, "x" * 255)),
    )


def foreign_death(draw: random.Random) -> object:
    entry = {
        "count": draw.choice((1, 2**40)),
        "reason": draw.choice(("expired", "rejected", "")),
        "queue": "elsewhere",
        "time": Timestamp(draw.choice((0, 1_700_000_000, 2**40))),
        "exchange": "",
        "routing-keys": ["a"],
    }
    return draw.choice(([entry], [entry, entry], []))


SMALL_TYPES = b"".join(
    pack(">B", len(name)) + name + value
    for name, value in (
        (b"b", b"b" + pack(">b", -1)),
        (b"B", b"B" + pack(">B", 255)),
        (b"s", b"s" + pack(">h", -1)),
        (b"u", b"u" + pack(">H", 65_535)),
        (b"I", b"I" + pack(">i", -1)),
        (b"i", b"i" + pack(">I", 2**32 - 1)),
        (b"f", b"f" + pack(">f", 1.5)),
        (b"t", b"t" + pack(">B", 1)),
    )
)


def test_headers_of_every_size_and_type_are_handled(
    *,
    client: Client,
    broker_url: str,
    namespace: str,
    make_worker: WorkerFactory,
    buried: LookerFactory,
    make_topics: TopicsFactory,
) -> None:
    """Small AMQP types, headers that fill a frame, and nesting that is too deep to read."""
    make_topics("t")
    nested: Any = {}
    for _ in range(200):
        nested = {"a": nested}
    full = {"filler": "x" * 130_960}
    queue = Topology(namespace).ready_queue("t")
    wrong = [
        Message(b"{", full, "full", "application/json"),
        Message(b"{", {"rd-attempt": "x"} | full, "no job", "application/json"),
        Message(b"{", nested, "nested", "application/json"),
    ]
    publish_frames(broker_url, queue, wrong)
    publish_small_types(broker_url, queue)
    client.put("t", {"order": 1})
    worker = make_worker()
    done = handle_orders(worker)
    with working(worker):
        wait_until(lambda: done == [1])
        graves = buried("t").wait_for(4)
        assert worker.client._engine.connections._publishers.opened is not None
        assert worker.client._engine.connections._publishers.opened._connector._attempts == 0
    assert len(graves) == 4
    (small,) = [grave for grave in graves if grave.message_id == "small"]
    assert small.headers["I"] == -1
    assert small.headers["i"] == 2**32 - 1


def publish_small_types(url: str, queue: str) -> None:
    """Publish headers of types that our own encoder never writes."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        number = channel.channel_number
        whole = encode.publish(number, "", queue, Message(b"{", {}, "small"), 131_072)
        method_size = 7 + int.from_bytes(whole[3:7]) + 1
        table = pack(">I", len(SMALL_TYPES)) + SMALL_TYPES
        flags = encode.HEADERS | encode.MESSAGE_ID
        header = pack(">HHQH", encode.BASIC, 0, 1, flags) + table + b"\x05small"
        piece = pack(">BHI", encode.HEADER, number, len(header)) + header + encode.END
        body = pack(">BHI", encode.BODY, number, 1) + b"{" + encode.END
        connection._impl._adapter_emit_data(whole[:method_size] + piece + body)
        channel.queue_declare(queue, passive=True)


@pytest.fixture
def reader_url(shared_broker: SharedBroker, namespace: str) -> Iterator[str]:
    """The URL of a user that may consume, and may publish only fences."""
    manage(shared_broker, "PUT", f"users/{namespace}", password=namespace, tags="")
    permit_writing(shared_broker, namespace, rf"^{namespace}\.tombstones$")
    host = shared_broker.url.rpartition("@")[2]
    yield f"amqp://{namespace}:{namespace}@{host}"
    manage(shared_broker, "DELETE", f"users/{namespace}")


def permit_writing(shared: SharedBroker, user: str, names: str) -> None:
    """Permit a user to read everything, and write only to names that match."""
    allowed = {"configure": "", "write": names, "read": ".*"}
    manage(shared, "PUT", f"permissions/%2F/{user}", **allowed)


def manage(shared: SharedBroker, method: str, path: str, **fields: str) -> None:
    management = shared.management
    credentials = b64encode(f"{management.user}:{management.password}".encode()).decode()
    request = Request(  # noqa: S310 - always http
        f"{management.url}api/{path}",
        method=method,
        data=json.dumps(fields).encode(),
        headers={"Authorization": f"Basic {credentials}", "Content-Type": "application/json"},
    )
    urlopen(request, timeout=patience(10)).close()  # noqa: S310 - always http


def test_a_worker_that_may_not_publish_keeps_jobs_for_retry(
    client: Client,
    reader_url: str,
    make_worker: WorkerFactory,
    buried: LookerFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker buries its buried jobs. The worker keeps jobs to retry without running them."""
    client.put("t", id="bury")
    client.put("t", id="retry")
    seen: list[str] = []
    worker = make_worker(reader_url, declare=False)

    @worker.handler("t", ttr=30)
    def work(job: Job) -> None:
        seen.append(job.id)
        raise Bury("no") if job.id == "bury" else ValueError

    with caplog.at_level(logging.WARNING), working(worker):
        (message,) = buried("t").wait_for(1)
        wait_until(lambda: caplog.text.count("retry not published, trying again") >= 2)
    assert message.message_id == "bury"
    assert read_grave(message.headers).reason == "a consumer rejected it"
    assert sorted(seen) == ["bury", "retry"]


def test_a_worker_that_may_not_write_a_fence_raises(
    client: Client,
    shared_broker: SharedBroker,
    namespace: str,
    reader_url: str,
    *,
    make_worker: WorkerFactory,
) -> None:
    """Without a fence it cannot know the deletes, so it runs no job and names the permission."""
    client.put("t", id="dead")
    client.delete("dead")
    permit_writing(shared_broker, namespace, "")
    worker = make_worker(reader_url, declare=False)
    seen: list[str] = []
    worker.handler("t")(lambda job: seen.append(job.id))
    with pytest.raises(PermissionRefused, match=rf"{namespace}\.tombstones"):
        worker.run(until_empty=True)
    assert seen == []
    with (
        Client(reader_url, namespace=namespace, declare=False) as reader,
        pytest.raises(PermissionRefused, match=rf"{namespace}\.tombstones"),
    ):
        reader.pop("t", wait=patience(20))


def test_a_worker_continues_when_it_may_write_fences_again(
    client: Client,
    shared_broker: SharedBroker,
    namespace: str,
    reader_url: str,
    *,
    make_worker: WorkerFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its fences were refused for a while. It writes new ones, also while other clients delete."""
    client.put("t", id="before")
    client.delete("nothing")
    worker = make_worker(reader_url, declare=False)
    seen = noting(worker)
    with working(worker), deletes_flow(client):
        wait_until(lambda: "before" in seen, seconds=20)
        permit_writing(shared_broker, namespace, "")
        client.put("t", id="meanwhile", delay=2.5)
        wait_until(lambda: "log of deletes: cut off" in caplog.text, seconds=30)
        permit_writing(shared_broker, namespace, rf"^{namespace}\.tombstones$")
        wait_until(lambda: "meanwhile" in seen, seconds=15)
        client.put("t", id="after", delay=2.5)
        wait_until(lambda: "after" in seen, seconds=15)
    assert seen == ["before", "meanwhile", "after"]
