"""A target that hangs, refuses or is poisoned delays only the messages sent to it."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import pika
import pytest

from rabbitdelay import Client, Job, JobRefused
from rabbitdelay.core.jobs import validation
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.confirms import answers, stall_detector
from rabbitdelay.private_broker import PrivateBroker
from tests.conftest import ClientFactory, ReceiverFactory, WorkerFactory
from tests.support.brokers.messages import publish
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.fronts import Front
from tests.support.jobs.popped_jobs import pop
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until

SUSPEND = """
{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{queue}">>)),
Leader = amqqueue:get_pid(Q),
register({name}, spawn(fun() -> erlang:suspend_process(Leader), receive stop -> ok end end)).
"""


@contextmanager
def standing_still(broker: PrivateBroker, queue: str) -> Iterator[None]:
    """Suspend the leader of a queue inside the block, as on a node that hangs."""
    node = broker.nodes[0]
    name = f"'suspends {queue}'"
    node.control("eval", SUSPEND.format(queue=queue, name=name))
    try:
        yield
    finally:
        node.control("eval", f"{name} ! stop.")


def test_a_suspended_log_delays_only_deletes(
    front: Front,
    breakable_broker: PrivateBroker,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Puts continue while a delete waits, also over a connection opened meanwhile."""
    monkeypatch.setattr(stall_detector, "STALLED_SECONDS", 1.0)
    options = {"namespace": namespace, "stabilise_seconds": 0, "timeout": patience(20)}
    with front.client(breakable_broker.url, **options) as client, ThreadPoolExecutor() as pool:
        client.put("t", delay=0.5)
        client.delete("before")
        with standing_still(breakable_broker, Topology(namespace).tombstones):
            deleting = pool.submit(client.delete, "during")
            number = 0
            while "republishing" not in caplog.text:
                client.put("t", number, delay=0.5, timeout=patience(5))
                number += 1
            for number in range(100):
                client.put("t", number, delay=0.5, timeout=patience(5))
            with front.client(breakable_broker.url, **options) as another:
                another.put("t", "another", delay=0.5)
            assert not deleting.done()
        deleting.result(patience(60))
        client.delete("after")


def test_only_a_poisoned_put_fails(
    client: Client,
    receive: ReceiverFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker closes the channel without saying which message was the cause."""
    client.put("t", delay=0.01)
    monkeypatch.setattr(validation, "_reply_to", lambda queue: queue)
    futures = [client.put_nowait("t", n, delay=0.01) for n in range(150)]
    poisoned = client.put_nowait("t", "poisoned", delay=0.01, reply_to="amq.rabbitmq.reply-to")
    futures += [client.put_nowait("t", n, delay=0.01) for n in range(150)]
    with pytest.raises(JobRefused, match="closes the channel when it reads this message"):
        poisoned.result(patience(20))
    ids = [future.result(patience(20)).id for future in futures]
    receiver = receive("t")
    receiver.wait_for(*ids)
    assert caplog.text.count("channel closed by the broker") == 3
    assert max(Counter(message.id for message in receiver.messages).values()) <= 3
    assert client.put("t").topic == "t"


def test_a_full_queue_delays_only_puts_to_it(
    client: Client,
    shared_broker: SharedBroker,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Many puts pass while one is refused repeatedly."""
    queue = Topology(namespace).ready_queue("full").replace(".", "[.]")
    definition = {"max-length": 1, "overflow": "reject-publish"}
    client.put("t", 0)
    client.put("full", 1)
    policy = f"policies/%2F/{namespace}"
    management = shared_broker.management
    management.put(policy, {"pattern": f"^{queue}$", "definition": definition})
    refused = client.put_nowait("full", 2, timeout=patience(20))
    try:
        while wait([refused], 0.5).done:  # a policy takes effect after a moment
            refused = client.put_nowait("full", 2, timeout=patience(20))
        wait_until(lambda: "another channel" in caplog.text, seconds=30)
        before = caplog.text.count("another channel")
        passed = 0
        while caplog.text.count("another channel") < before + 1:
            client.put("t", passed)
            passed += 1
        assert passed > 100
        assert not refused.done()
    finally:
        management.remove(policy)
    found = {pop(client, "full").body}
    refused.result(patience(30))
    while 2 not in found:
        found.add(pop(client, "full").body)


def test_a_response_to_a_full_queue_does_not_delay_other_responses(
    client: Client,
    make_worker: WorkerFactory,
    broker_url: str,
    namespace: str,
    *,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Many responses pass while one is refused repeatedly."""
    monkeypatch.setattr(answers, "REFUSED_SECONDS", 0.5)
    full = f"answers.{namespace}"
    worker = make_worker(allow_reply_to=[full])
    worker.handler("t", ttr=300)(lambda body: body)
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        connection.channel().queue_declare(full, durable=True, arguments=arguments)
        publish(broker_url, full, (b"fills it", None))
        with working(worker):
            client.put("t", "refused", reply_to=full)
            wait_until(lambda: "another channel" in caplog.text, seconds=30)
            before, passed = caplog.text.count("another channel"), 0
            while caplog.text.count("another channel") < before + 1:
                response = client.response(client.put("t", passed, reply=True), wait=patience(10))
                assert response is not None
                passed += 1
                time.sleep(0.02)  # else the test uses all of a core
            assert passed > 20
            connection.channel().queue_purge(full)
            wait_until(lambda: worker.stats().counts.finished == passed + 1, seconds=30)
        connection.channel().queue_delete(full)


@pytest.mark.slow
def test_a_put_over_a_slow_connection_is_confirmed(
    front: Front, make_client: ClientFactory, broker_url: str, receive: ReceiverFactory
) -> None:
    """One second each way, with no queue declared yet, within the default timeout of 30 s."""
    with front.back_end.proxy(broker_url) as proxy:
        client = make_client(proxy.url, timeout=30)
        client.connect()
        proxy.delay_seconds = 1.0
        job = client.put("t", delay=1.5)
        futures = [client.put_nowait("t", n, delay=1.5) for n in range(100)]
        ids = [future.result(patience(30)).id for future in futures]
        receive("t").wait_for(job.id, *ids)
        proxy.delay_seconds = 0.0


@pytest.mark.slow
@pytest.mark.parametrize("delay_seconds", [0.5, 1.0])
def test_a_worker_and_a_client_work_over_a_slow_connection(
    front: Front,
    client: Client,
    make_client: ClientFactory,
    make_worker: WorkerFactory,
    broker_url: str,
    *,
    delay_seconds: float,
) -> None:
    """Both connect, become current, hand out, retry, settle and delete with default settings."""
    with front.back_end.proxy(broker_url, delay_seconds=delay_seconds) as proxy:
        far, worker = make_client(proxy.url, timeout=30), make_worker(proxy.url)
        attempts: list[tuple[str, int]] = []

        @worker.handler("t", ttr=60, backoff=0)
        def work(job: Job) -> None:
            attempts.append((job.id, job.attempt))
            if job.id == "retried" and job.attempt == 1:
                raise ValueError

        for name in ("first", "retried", "deleted"):
            far.put("t", id=name, delay=1.5)
        far.delete("deleted")
        with working(worker):
            wait_until(lambda: worker.stats().counts.finished == 2, seconds=60)
            client.put("t", id="later", delay=4)  # until the proof has expired
            wait_until(lambda: worker.stats().counts.finished == 3, seconds=30)
            proxy.delay_seconds = 0.0
    assert sorted(attempts) == [("first", 1), ("later", 1), ("retried", 1), ("retried", 2)]
    assert client.topics("t")[0].ready == 0
