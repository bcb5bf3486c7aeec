"""A broker that starts behind a proxy such as Docker's, which accepts and closes connections."""

import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from rabbitdelay import BrokerUnreachable
from tests.conftest import ClientFactory
from tests.support.patience import patience


class Door:
    """Accepts connections; closes the first of them and forwards later ones to a broker."""

    def __init__(self, url: str, closes: int) -> None:
        self._broker = ("127.0.0.1", urlsplit(url).port or 5672)
        self._closes = closes
        self.count = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"amqp://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.count += 1
            if self.count <= self._closes:
                client.close()
                continue
            broker = socket.create_connection(self._broker)
            for ends in ((client, broker), (broker, client)):
                threading.Thread(target=_forward, args=ends, daemon=True).start()


def _forward(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
    except OSError:
        pass
    finally:
        target.close()


@pytest.fixture
def door(request: pytest.FixtureRequest, broker_url: str) -> Iterator[Door]:
    door = Door(broker_url, request.param)
    yield door
    door.close()


@pytest.mark.parametrize("door", [2], indirect=True)
def test_a_client_retries_until_the_broker_answers(make_client: ClientFactory, door: Door) -> None:
    client = make_client(door.url, connect_timeout=patience(10))
    client.put("t", delay=60)
    assert door.count > 2


@pytest.mark.parametrize("door", [10_000], indirect=True)
def test_the_error_says_that_the_broker_may_still_be_starting(
    make_client: ClientFactory, door: Door
) -> None:
    with pytest.raises(BrokerUnreachable, match="the broker is still starting behind a proxy"):
        make_client(door.url, connect_timeout=1)
    assert door.count > 1


@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_the_error_says_that_the_broker_has_not_answered_in_time(
    make_client: ClientFactory, scheme: str
) -> None:
    """The system accepts connections for a broker that hangs."""
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        url = f"{scheme}://127.0.0.1:{hanging.getsockname()[1]}/?connection_timeout=1"
        with pytest.raises(BrokerUnreachable, match="cannot connect in time"):
            make_client(url, connect_timeout=1)
