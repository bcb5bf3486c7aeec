"""Gateways that are killed, and clients that are cut off: real processes and RabbitMQ."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from rabbitdelay import Client, JobSpec
from rabbitdelay.private_broker import PrivateBroker
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.gateway.balancer import Balancer
from tests.support.gateway.http_client import NO_ANSWER, HttpClient
from tests.support.gateway.many_clients import ManyClients
from tests.support.gateway.outage_clients import BUSY, LATER, OutageClients
from tests.support.gateway.served import RECEIVE_BYTES, RawClient
from tests.support.patience import patience, wait_until
from tests.support.programs.gateway_process import GatewayProcess, serving

pytestmark = pytest.mark.timeout(180)
TTR = 3_600
TTR_WHILE_FROZEN = 5
LARGE = "x" * 900_000
FINISHED, LOST = 204, 409
EXPECTED = {
    *(("/v1/jobs", status) for status in (201, 202, 503)),
    *(("/v1/pop", status) for status in (200, 204, 503)),
    *(("/v1/finish", status) for status in (202, 204, 409, 503)),
}


@pytest.fixture
def gateways(
    shared_broker: SharedBroker, namespace: str, client: Client
) -> Iterator[list[GatewayProcess]]:
    """Two gateways of one namespace, which exists."""
    client.put("other")
    with ExitStack() as stack:
        yield [stack.enter_context(serving(shared_broker.url, namespace)) for _ in range(2)]


@pytest.fixture
def client(shared_broker: SharedBroker, namespace: str) -> Iterator[Client]:
    with Client(shared_broker.url, namespace=namespace, stabilise_seconds=0) as client:
        yield client


def kill(gateway: GatewayProcess) -> None:
    gateway.process.send_signal(signal.SIGKILL)
    gateway.process.wait(patience(10))


def consumers(http: HttpClient, *topics: str) -> set[int]:
    """Return the number of consumers that each of these topics has."""
    return {http.ask("GET", f"/v1/topics/{topic}")[1]["consumers"] for topic in topics}


@contextmanager
def frozen(gateway: GatewayProcess) -> Iterator[None]:
    """Suspend a gateway inside the block."""
    gateway.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        gateway.process.send_signal(signal.SIGCONT)


# A gateway is killed with jobs


def test_jobs_of_a_killed_gateway_come_back_at_once_and_unchanged(
    gateways: list[GatewayProcess],
) -> None:
    one, two = (HttpClient(gateway.port) for gateway in gateways)
    ids = sorted(one.put("t", n, ttr=TTR) for n in range(20))
    held = one.pop("t", wait=10, max=20)
    while len(held) < len(ids):
        held += one.pop("t", wait=10, max=20)
    kill(gateways[0])
    again = list[dict[str, Any]]()
    while len(again) < len(ids):
        found = two.pop("t", wait=10, max=20)
        assert found, "jobs are lost"
        again += found
    assert sorted(job["id"] for job in again) == ids
    assert {job["attempt"] for job in again} == {1}
    assert {two.settle("finish", job["lease"]) for job in again} == {FINISHED}
    assert two.pop("t") == []


def test_a_finish_after_its_gateway_was_killed_is_durable(
    gateways: list[GatewayProcess], shared_broker: SharedBroker, namespace: str
) -> None:
    """The jobs are in their queue again, and are not handed out any more, by no consumer."""
    one, two = (HttpClient(gateway.port) for gateway in gateways)
    for n in range(10):
        one.put("t", n, ttr=TTR)
    held = [job for _ in range(10) for job in one.pop("t", wait=10)]
    kill(gateways[0])
    assert [two.settle("finish", job["lease"]) for job in held[:5]] == [FINISHED] * 5
    kept = {job["id"] for job in held[5:]}
    with Client(shared_broker.url, namespace=namespace, stabilise_seconds=0) as client:
        again = []
        while job := client.pop("t", wait=patience(1)):
            again.append(job.id)
            job.finish()
    assert set(again) == kept
    assert len(again) == len(kept)


@pytest.mark.parametrize("verb", ["release", "touch", "bury"])
def test_other_verbs_fail_after_their_gateway_was_killed(
    gateways: list[GatewayProcess], verb: str
) -> None:
    one, two = (HttpClient(gateway.port) for gateway in gateways)
    job_id = one.put("t", ttr=TTR)
    (held,) = one.pop("t", wait=10)
    kill(gateways[0])
    options = {"reason": "no"} if verb == "bury" else {}
    assert two.settle(verb, held["lease"], **options) == LOST
    (again,) = two.pop("t", wait=10)
    assert (again["id"], again["attempt"]) == (job_id, 1)
    assert two.settle("finish", again["lease"]) == FINISHED


def test_a_finish_that_succeeds_while_its_gateway_is_frozen_is_durable(
    gateways: list[GatewayProcess],
) -> None:
    """The gateway goes on later, and finds that its job is finished."""
    one, two = (HttpClient(gateway.port) for gateway in gateways)
    job_id = one.put("t", ttr=TTR_WHILE_FROZEN)
    (held,) = one.pop("t", wait=10)
    with frozen(gateways[0]):
        status = two.settle("finish", held["lease"])
    again = two.pop("t", wait=TTR_WHILE_FROZEN + 2)
    if status == FINISHED:
        assert again == []
    else:  # this machine was so slow that the ttr had passed
        assert (status, again[0]["id"]) == (LOST, job_id)


# Several gateways behind a load balancer


def test_any_gateway_settles_a_job(gateways: list[GatewayProcess]) -> None:
    with Balancer([gateway.port for gateway in gateways]) as balancer:
        client = HttpClient(balancer.port)
        for n in range(40):
            client.put("t", n, ttr=TTR)
        for _ in range(40):
            (job,) = client.pop("t", wait=10)
            assert client.settle("touch", job["lease"]) == 200
            assert client.settle("finish", job["lease"]) == FINISHED
            assert client.settle("finish", job["lease"]) == LOST
        assert client.pop("t") == client.pop("t") == []


def test_no_job_is_lost_or_held_when_one_gateway_after_the_other_is_killed(
    shared_broker: SharedBroker, namespace: str, client: Client
) -> None:
    """Every job is finished, and one whose finish succeeded is never handed out again."""
    client.put("other")
    with ExitStack() as stack:
        running = [stack.enter_context(serving(shared_broker.url, namespace)) for _ in range(2)]
        ports = [gateway.port for gateway in running]
        ids = {client.put("t", n, ttr=TTR).id for n in range(150)}
        finished, after_finish, failures = set[str](), list[str](), list[object]()
        unanswered = set[str]()  # their gateway died before or after it finished them
        lock, is_over = threading.Lock(), threading.Event()

        def consume(http: HttpClient) -> None:
            while not is_over.is_set():
                status, answer = http.ask("POST", "/v1/pop", {"topics": "t", "wait": 1})
                for job in answer["jobs"] if status == 200 else ():
                    with lock:
                        if job["id"] in finished:
                            after_finish.append(job["id"])
                    done = http.settle("finish", job["lease"])
                    with lock:
                        if done == FINISHED:
                            finished.add(job["id"])
                        elif done in (NO_ANSWER, 202):
                            unanswered.add(job["id"])
                        elif done not in (LOST, 503):
                            failures.append(done)

        with Balancer(ports) as balancer, ThreadPoolExecutor(8) as pool:
            consumers = [pool.submit(consume, HttpClient(balancer.port)) for _ in range(8)]
            try:
                for turn in range(3):
                    wait_until(lambda turn=turn: len(finished) >= 30 * (turn + 1), seconds=30)  # type: ignore[misc]
                    dying = running[turn % 2]
                    kill(dying)
                    dying.start()
                    wait_until(dying.is_ready, seconds=30)
                done = "every job is finished"
                wait_until(lambda: finished | unanswered == ids, seconds=30, what=done)
            finally:
                is_over.set()
            for consumer in consumers:
                consumer.result()
        assert failures == []
        assert after_finish == []
        left = {job.id for job in client.pop("t", max=len(ids), wait=1)}
        assert left <= unanswered - finished


# The broker is killed


@pytest.mark.timeout(300)
def test_two_hundred_clients_outlive_the_broker(breakable_broker: PrivateBroker) -> None:
    """They are refused while it is away; then each goes on, and every accepted job is received."""
    url, namespace = breakable_broker.url, "outage"
    with (
        Client(url, namespace=namespace, timeout=patience(20)) as other,
        serving(url, namespace, "--put-timeout", "3s", survives_kills=True) as gateway,
        OutageClients(gateway.port, putters=120, poppers=40, waiting=40) as clients,
    ):
        http, history = HttpClient(gateway.port), clients.history
        given = {other.put(topic, id=f"first-{topic}").id for topic in LATER}
        clients.wait_until(lambda: given <= history.received.keys(), "the first jobs")
        clients.wait_until(lambda: consumers(http, *LATER) == {10}, "all long polls")
        clients.wait_for("putters", 201)
        clients.wait_for("poppers", 200)

        clients.forget()
        breakable_broker.kill()
        clients.wait_for("putters", 503)
        clients.wait_for("poppers", 503)
        assert http.ask("GET", "/healthz")[0] == 200
        assert http.ask("GET", "/readyz")[0] == 503
        status, problem = http.ask("POST", "/v1/jobs", {"topic": BUSY})
        assert (status, problem["type"]) == (503, "/problems/broker-unreachable"), "put is kept"

        clients.forget()
        breakable_broker.start()
        clients.wait_for("putters", 201)
        clients.wait_for("poppers", 200)
        later = [JobSpec(LATER[n % len(LATER)], id=f"later-{n}") for n in range(40)]
        other.put_many(later)
        clients.wait_for("waiting", 200)
        clients.stop_putting()
        accepted = history.ids(201) | given | {f"later-{n}" for n in range(40)}
        clients.wait_until(lambda: accepted <= history.received.keys(), "every accepted job")
    assert history.early() == {}
    assert history.received.keys() <= accepted | history.ids(202), "refused jobs are received"
    assert history.without_retry_after == []
    assert history.statuses <= EXPECTED


# Clients that are cut off


def test_a_client_that_is_cut_off_in_its_answer_gives_the_job_back(
    gateways: list[GatewayProcess],
) -> None:
    client = HttpClient(gateways[0].port)
    job_id = client.put("t", LARGE, ttr=TTR)
    with RawClient(gateways[0].port, RECEIVE_BYTES) as cut:
        cut.send("/v1/pop", {"topics": "t", "wait": 30})
        assert cut.socket.recv(100)
        cut.reset()
    (again,) = HttpClient(gateways[1].port).pop("t", wait=patience(5))
    assert (again["id"], again["attempt"]) == (job_id, 1)
    assert client.settle("finish", again["lease"]) == FINISHED


def test_jobs_that_come_due_while_clients_leave_are_all_received(
    gateways: list[GatewayProcess],
) -> None:
    """Long polls are reset at the moment at which a job is due."""
    port = gateways[0].port
    client = HttpClient(port)
    client.put("t")
    client.settle("finish", client.pop("t", wait=10)[0]["lease"])
    ids = set[str]()
    for turn in range(20):
        with RawClient(port) as leaving:
            leaving.send("/v1/pop", {"topics": "t", "wait": 30})
            ids.add(client.put("t", turn, ttr=TTR))
            leaving.reset()
    received = set[str]()
    while received != ids:
        found = client.pop("t", wait=patience(5), max=20)
        assert found, f"{len(ids - received)} jobs are held"
        received |= {job["id"] for job in found}
        assert {job["attempt"] for job in found} == {1}
        assert {client.settle("finish", job["lease"]) for job in found} == {FINISHED}


# Many clients


def test_two_thousand_clients_wait_in_order_with_little_memory(
    gateways: list[GatewayProcess],
) -> None:
    port = gateways[0].port
    client = HttpClient(port)
    client.put("t")
    client.settle("finish", client.pop("t", wait=10)[0]["lease"])
    with ManyClients(port) as many:
        many.poll([["t"]] * 2_000)
        assert gateways[0].memory_mb < 200, gateways[0].memory_mb
        expected = []
        for n in range(100):
            client.put("t", n)
            expected.append((n, n))
            wait_until(lambda n=n: len(many.received) > n)  # type: ignore[misc]
        assert many.received == expected
        ids = client.ask("POST", "/v1/jobs/batch", {"jobs": [{"topic": "t"}] * 900})
        assert ids[0] == 201
        ids = client.ask("POST", "/v1/jobs/batch", {"jobs": [{"topic": "t"}] * 1_000})
        assert ids[0] == 201
        wait_until(lambda: len(many.received) == 2_000, seconds=60)
        assert gateways[0].memory_mb < 200, gateways[0].memory_mb


def test_two_thousand_clients_wait_for_as_many_topics(gateways: list[GatewayProcess]) -> None:
    port = gateways[0].port
    client = HttpClient(port)
    chosen = [0, 299, 300, 1_000, 1_999]
    with ManyClients(port) as many:
        many.poll([[f"t{n}"] for n in range(2_000)])
        assert gateways[0].memory_mb < 200, gateways[0].memory_mb
        for n in chosen:
            client.put(f"t{n}", n)
        wait_until(lambda: len(many.received) == len(chosen), seconds=60)
        assert sorted(many.received) == [(n, n) for n in chosen]
