"""`rabbitdelay serve` as a process: its start, its end, and a broker that is killed."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rabbitdelay import Client
from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.private_broker.machine.ports import pick_free
from tests.support.patience import patience, wait_until
from tests.support.programs.gateway_process import GatewayProcess, serving

NAMESPACE = "serve"


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


def test_sigterm_ends_long_polls_and_leaves_time_to_settle(gateway: GatewayProcess) -> None:
    caller = Caller(gateway)
    caller.post("/v1/jobs", topic="t", body=1)
    _, popped = caller.post("/v1/pop", topics="t", wait=20)
    answers: list[tuple[int, Any]] = []
    polling = threading.Thread(
        target=lambda: answers.append(caller.post("/v1/pop", topics="never", wait=50))
    )
    polling.start()
    time.sleep(0.2)  # the poll is usually waiting by now; if not, it is refused
    gateway.process.send_signal(signal.SIGTERM)
    polling.join(patience(20))
    assert answers[0][0] in {204, 503}
    assert caller.post("/v1/pop", topics="t")[0] == 503
    assert caller.get("/readyz") == 503
    assert gateway.process.poll() is None
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


@pytest.mark.timeout(240)
def test_a_gateway_outlives_its_broker(breakable_broker: PrivateBroker) -> None:
    """Puts are refused while it is away, and every job that was accepted is delivered."""
    options = ("--put-timeout", "5s")
    with serving(breakable_broker.url, NAMESPACE, *options, survives_kills=True) as gateway:
        caller = Caller(gateway)
        stop, accepted = threading.Event(), list[str]()
        statuses = set[int]()

        def put() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                status, answer = caller.post("/v1/jobs", topic="t", body=number)
                statuses.add(status)
                if status == 201:
                    accepted.append(answer["id"])
                else:
                    stop.wait(0.05)

        putters = [threading.Thread(target=put) for _ in range(4)]
        for putter in putters:
            putter.start()
        try:
            wait_until(lambda: len(accepted) > 50, seconds=30, what="accepted puts")
            breakable_broker.kill()
            wait_until(lambda: 503 in statuses, seconds=30, what="refused puts")
            assert caller.get("/healthz") == 200
            assert caller.get("/readyz") == 503
            breakable_broker.start()
            wait_until(lambda: caller.get("/readyz") == 200, seconds=60, what="a ready gateway")
            before = len(accepted)
            wait_until(lambda: len(accepted) > before + 20, seconds=30, what="accepted puts")
        finally:
            stop.set()
            for putter in putters:
                putter.join()
        assert statuses <= {201, 202, 503}
        seen = set[str]()
        while set(accepted) - seen:
            status, answer = caller.post("/v1/pop", topics="t", max=500, wait=20)
            assert status == 200, f"{len(set(accepted) - seen)} accepted jobs did not come"
            seen |= {job["id"] for job in answer["jobs"]}
            caller.post("/v1/finish", leases=[job["lease"] for job in answer["jobs"]])


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
