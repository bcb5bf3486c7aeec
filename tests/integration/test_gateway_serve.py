"""`rabbitdelay serve` as a process: its start and its end."""

import asyncio
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rabbitdelay import Client
from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.private_broker.machine.ports import pick_free
from tests.support.gateway.served import RawClient
from tests.support.patience import patience, wait_until
from tests.support.programs.gateway_process import GatewayProcess, serving

NAMESPACE = "serve"
TTR = 3_600


class Caller:
    """A client over HTTP."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._url = gateway.url

    def get(self, path: str) -> int:
        """Send a GET request; return the status."""
        return self._ask(urllib.request.Request(self._url + path))[0]  # noqa: S310 - ours

    def post(self, path: str, **members: object) -> tuple[int, Any]:
        """Send a POST request; return the status and the answer."""
        headers = {"Content-Type": "application/json"}
        content = json.dumps(members).encode()
        request = urllib.request.Request(self._url + path, content, headers)  # noqa: S310 - ours
        return self._ask(request)

    def consumers(self, topic: str) -> int:
        """Return the number of consumers of a topic, which the gateway has for long polls."""
        request = urllib.request.Request(f"{self._url}/v1/topics/{topic}")  # noqa: S310 - ours
        return int(self._ask(request)[1]["consumers"])

    @staticmethod
    def _ask(request: urllib.request.Request) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=patience(60)) as answer:  # noqa: S310
                content = answer.read()
                return answer.status, json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.fixture
def gateway(broker_url: str, namespace: str) -> Iterator[GatewayProcess]:
    with serving(broker_url, namespace, "--grace", "60s") as gateway:
        yield gateway
        gateway.process.kill()


def test_sigterm_ends_long_polls_and_leaves_time_to_settle(broker_url: str, namespace: str) -> None:
    """A lease is settled during the grace, whose end gives back the other jobs unchanged."""
    options = ("--grace", "10m", "--max-wait", "10m")
    with (
        serving(broker_url, namespace, *options) as gateway,
        Client(broker_url, namespace=namespace, timeout=patience(20)) as other,
        ExitStack() as stack,
    ):
        caller = Caller(gateway)
        for _ in range(3):
            caller.post("/v1/jobs", topic="held", ttr=TTR)
        held = [caller.post("/v1/pop", topics="held", wait=20)[1]["jobs"][0] for _ in range(3)]
        other.put("polled")
        pop_id(other, "polled")
        wait_until(lambda: caller.consumers("polled") == 0, what="no long poll")
        polls = [stack.enter_context(RawClient(gateway.port)) for _ in range(5)]
        for poll in polls:
            poll.send("/v1/pop", {"topics": "polled", "wait": 600})
        wait_until(lambda: caller.consumers("polled") == 5, what="all long polls")

        gateway.process.send_signal(signal.SIGTERM)
        assert [poll.answer()[0] for poll in polls] == [204] * 5
        assert caller.post("/v1/pop", topics="polled")[0] == 503
        assert caller.get("/readyz") == 503
        wait_until(lambda: caller.consumers("polled") == 0, what="the end of the consumers")
        put = other.put("polled")
        assert pop_id(other, "polled") == put.id, "the long polls still take jobs"
        assert other.pop("held") is None, "leases are given back during the grace"
        assert gateway.process.poll() is None
        assert caller.post("/v1/finish", lease=held[0]["lease"])[0] == 204

        gateway.process.send_signal(signal.SIGINT)
        assert gateway.process.wait(patience(20)) == 130
        again = {pop_id(other, "held") for _ in held[1:]}
        assert again == {job["id"] for job in held[1:]}
        assert other.pop("held") is None


def pop_id(client: Client, topic: str) -> str:
    """Finish the next job of a topic, in its first attempt; return its id."""
    job = client.pop(topic, wait=patience(10))
    assert job is not None
    assert job.attempt == 1
    job.finish()
    return job.id


def test_a_gateway_ends_when_the_last_lease_is_settled(gateway: GatewayProcess) -> None:
    caller = Caller(gateway)
    caller.post("/v1/jobs", topic="t")
    _, popped = caller.post("/v1/pop", topics="t", wait=20)
    gateway.process.send_signal(signal.SIGTERM)
    wait_until(lambda: caller.get("/readyz") == 503, what="a gateway that stops")
    assert caller.post("/v1/finish", lease=popped["jobs"][0]["lease"])[0] == 204
    assert gateway.process.wait(patience(20)) == 0


def test_jobs_that_are_not_settled_return_unchanged_after_the_grace(
    broker_url: str, namespace: str
) -> None:
    with serving(broker_url, namespace, "--grace", "100ms") as gateway:
        caller = Caller(gateway)
        caller.post("/v1/jobs", topic="t", ttr=600)
        assert caller.post("/v1/pop", topics="t", wait=20)[0] == 200
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(patience(20)) == 0
    with Client(broker_url, namespace=namespace) as client:
        job = client.pop("t", wait=patience(10))
        assert job is not None
        assert job.attempt == 1
        job.finish()


def test_a_second_ctrl_c_ends_the_grace(gateway: GatewayProcess) -> None:
    caller = Caller(gateway)
    caller.post("/v1/jobs", topic="t")
    assert caller.post("/v1/pop", topics="t", wait=20)[0] == 200
    gateway.process.send_signal(signal.SIGINT)
    wait_until(lambda: caller.get("/readyz") == 503, seconds=10, what="a gateway that stops")
    gateway.process.send_signal(signal.SIGINT)
    assert gateway.process.wait(patience(20)) == 130


def test_a_gateway_starts_before_its_broker(breakable_broker: PrivateBroker) -> None:
    breakable_broker.stop()
    gateway = GatewayProcess(breakable_broker.url, NAMESPACE)
    try:
        caller = Caller(gateway)
        wait_until(lambda: _is_alive(caller), seconds=20, what="a gateway that is alive")
        assert caller.get("/readyz") == 503
        assert caller.post("/v1/jobs", topic="t")[0] == 503
        breakable_broker.start()
        wait_until(lambda: caller.get("/readyz") == 200, seconds=60, what="a ready gateway")
        assert caller.post("/v1/jobs", topic="t")[0] == 201
    finally:
        gateway.end()


def _is_alive(caller: Caller) -> bool:
    try:
        return caller.get("/healthz") == 200
    except OSError:
        return False


def run(*options: str, code: str = "") -> "subprocess.CompletedProcess[str]":
    """Run `rabbitdelay serve` until it ends by itself."""
    program = f"{code}\nfrom rabbitdelay.cli import main\nmain()"
    arguments = ("--url", "amqp://127.0.0.1:1", "serve", *options)
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=patience(30),
        check=False,
    )


def test_a_port_in_use_is_a_clear_error() -> None:
    async def scenario() -> "subprocess.CompletedProcess[str]":
        (port,) = pick_free(1)
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
        async with server:
            return await asyncio.to_thread(run, "--port", str(port))

    done = asyncio.run(scenario())
    assert done.returncode == 1
    assert "another program uses this port" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_without_the_extra_the_command_to_install_it_is_shown(package: str) -> None:
    done = run(code=f"import sys; sys.modules['{package}'] = None")
    assert done.returncode == 1
    assert "pip install 'rabbitdelay[http]'" in done.stderr


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    file.write_text("x")
    done = run("--tls-cert", str(file))
    assert done.returncode == 2
    assert "give both a TLS certificate and its key" in done.stderr
