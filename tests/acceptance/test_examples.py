"""The shop of examples/, run as its files document, against a real broker and over HTTP."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from rabbitdelay import Client
from rabbitdelay.private_broker.machine.ports import pick_free
from tests.support.patience import patience, wait_until

pytestmark = pytest.mark.usefixtures("nothing_set", "shop")

SHOP = Path(__file__).parents[2] / "examples" / "shop"
SECONDS_TO_PAY = 2
END_SECONDS = patience(20)


@pytest.fixture
def shop(broker_url: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the shop's environment, and create its queues ahead, so that none has to stabilise."""
    monkeypatch.setenv("RABBITDELAY_URL", broker_url)
    monkeypatch.setenv("RABBITDELAY_NAMESPACE", namespace)
    monkeypatch.setenv("SHOP_DATABASE", str(tmp_path / "shop.sqlite3"))
    monkeypatch.setenv("SHOP_SECONDS_TO_PAY", str(SECONDS_TO_PAY))
    with Client(broker_url, namespace=namespace, stabilise_seconds=0) as client:
        for topic in ("orderclose", "reminder"):
            client.put(topic, delay=SECONDS_TO_PAY)
            client.purge(topic)


@contextmanager
def running(output: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run Python with these arguments in the shop's folder inside the block; end with SIGTERM."""
    with (
        output.open("wb") as file,
        subprocess.Popen([sys.executable, *command], cwd=SHOP, stdout=file, stderr=file) as process,
    ):
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            process.wait(END_SECONDS)
        finally:
            process.kill()


class Service:
    """A client of the service over HTTP."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def call(self, method: str, path: str) -> dict[str, Any]:
        """Return the service's answer to a request."""
        request = Request(f"{self._url}{path}", method=method)  # noqa: S310 - our own service
        with urlopen(request, timeout=patience(20)) as response:  # noqa: S310 - the same
            answer: dict[str, Any] = json.load(response)
        return answer

    def is_up(self) -> bool:
        """Return whether the service answers."""
        try:
            self.call("GET", "/openapi.json")
        except URLError:
            return False
        return True

    def state(self, order: int) -> object:
        """Return the state of an order."""
        return self.call("GET", f"/orders/{order}")["state"]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """The service, run by uvicorn."""
    port = pick_free(1)[0]
    output = tmp_path / "service.log"
    with running(output, "-m", "uvicorn", "service:app", "--port", str(port)) as process:
        service = Service(port)
        wait_until(lambda: service.is_up() or process.poll() is not None, seconds=30)
        assert process.poll() is None, output.read_text()
        yield service
    assert "Traceback" not in output.read_text()


@pytest.mark.parametrize("worker", ["worker.py", "aio_worker.py"])
def test_a_paid_order_is_not_closed_and_the_others_are(
    service: Service, worker: str, tmp_path: Path
) -> None:
    """The worker never sees the job of the paid order, because it is deleted.

    The worker starts after the payment, so that a busy machine has time to pay.
    """
    paid, unpaid, last = (service.call("POST", "/orders")["order"] for _ in range(3))
    assert service.call("POST", f"/orders/{paid}/payment")["state"] == "paid"
    output = tmp_path / "worker.log"
    with running(output, worker) as process:
        for order in (unpaid, last):
            wait_until(partial(is_closed, service, order), seconds=30, what=f"{order} is closed")
    assert process.returncode == 0, output.read_text()
    assert service.state(paid) == "paid"
    lines = output.read_text().splitlines()
    assert sorted(lines) == [f"orderclose-{order}: closed" for order in (unpaid, last)]


def is_closed(service: Service, order: int) -> bool:
    return service.state(order) == "closed"


def test_a_service_with_a_worker_in_its_lifespan_shuts_down_on_sigterm(
    tmp_path: Path,
) -> None:
    """Uvicorn gets the signal and shuts down, and its lifespan ends the worker."""
    port, output = pick_free(1)[0], tmp_path / "service.log"
    command = ("-m", "uvicorn", "service_with_worker:app", "--port", str(port))
    with running(output, *command) as process:
        service = Service(port)
        wait_until(lambda: service.is_up() or process.poll() is not None, seconds=30)
        assert process.poll() is None, output.read_text()
        order = service.call("POST", "/orders")["order"]
        wait_until(partial(is_closed, service, order), seconds=30, what=f"{order} is closed")
    lines = output.read_text()
    assert process.returncode in (0, -signal.SIGTERM), lines  # raised again by uvicorn
    assert "Application shutdown complete" in lines
    assert "worker ended" in lines
    assert "Traceback" not in lines


def test_an_order_that_is_not_open_cannot_be_paid(service: Service) -> None:
    order = service.call("POST", "/orders")["order"]
    service.call("POST", f"/orders/{order}/payment")
    with pytest.raises(HTTPError, match="409") as caught:
        service.call("POST", f"/orders/{order}/payment")
    caught.value.close()


@pytest.mark.parametrize("arguments", [["7", "8"], []], ids=["arguments", "stdin"])
def test_reminders_arrive_when_they_are_due(arguments: list[str]) -> None:
    minutes = str(SECONDS_TO_PAY / 60)
    done = subprocess.run(
        [sys.executable, "remind.py", "--minutes", minutes, "--wait", *arguments],
        cwd=SHOP,
        input="7\n8\n",
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *others = done.stdout.splitlines()
    assert first == "2 reminders, due in 0:00:02"
    assert sorted(others) == [f"remind the customer of order {order}" for order in (7, 8)]
