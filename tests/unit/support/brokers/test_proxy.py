"""The proxy that tests disturb the network with."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support.brokers.proxy import Proxy


@pytest.fixture
def echo_url() -> Iterator[str]:
    """A server that sends back whatever it receives."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo(peer: socket.socket) -> None:
            with peer, suppress(ConnectionResetError):
                while data := peer.recv(1024):
                    peer.sendall(data)

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=echo, args=(peer,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"amqp://guest:guest@127.0.0.1:{server.getsockname()[1]}/"
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(echo_url: str) -> Iterator[Proxy]:
    with Proxy(echo_url) as proxy:
        yield proxy


def connect(proxy: Proxy) -> socket.socket:
    port = int(proxy.url.rpartition(":")[2].strip("/"))
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def test_its_url_is_that_of_the_broker_at_another_port(proxy: Proxy, echo_url: str) -> None:
    assert proxy.url != echo_url
    assert proxy.url.startswith("amqp://guest:guest@127.0.0.1:")


def test_bytes_arrive_in_both_directions(proxy: Proxy) -> None:
    with connect(proxy) as peer:
        peer.sendall(b"one")
        assert peer.recv(10) == b"one"
        assert proxy.connection_count == 1


def test_a_delay_is_added_to_each_direction(proxy: Proxy) -> None:
    proxy.delay_seconds = 0.1
    with connect(proxy) as peer:
        began = time.monotonic()
        peer.sendall(b"one")
        assert peer.recv(10) == b"one"
        assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize(
    "directions",
    [{}, {"to_broker": False}, {"to_client": False}],
    ids=["both ways", "to the client", "to the broker"],
)
def test_silence_holds_everything_back_until_it_is_restored(
    proxy: Proxy, directions: dict[str, bool]
) -> None:
    with connect(proxy) as peer:
        peer.sendall(b"one")
        assert peer.recv(10) == b"one"
        proxy.silence(**directions)
        peer.sendall(b"two")
        peer.settimeout(0.2)
        with pytest.raises(TimeoutError):
            peer.recv(10)
        proxy.restore()
        peer.settimeout(30)
        assert peer.recv(10) == b"two"


def test_one_connection_falls_silent_while_the_others_go_on(proxy: Proxy) -> None:
    with connect(proxy) as first, connect(proxy) as second:
        for peer in (first, second):
            peer.sendall(b"one")
            assert peer.recv(10) == b"one"
        proxy.silence(only=0)
        for peer in (first, second):
            peer.sendall(b"two")
        assert second.recv(10) == b"two"
        first.settimeout(0.2)
        with pytest.raises(TimeoutError):
            first.recv(10)
        proxy.restore()
        first.settimeout(30)
        assert first.recv(10) == b"two"


def test_a_connection_that_is_opened_in_silence_gets_no_answer_before_it_ends(
    proxy: Proxy,
) -> None:
    proxy.silence()
    with connect(proxy) as peer:
        peer.sendall(b"one")
        peer.settimeout(0.2)
        with pytest.raises(TimeoutError):
            peer.recv(10)
        proxy.restore()
        peer.settimeout(30)
        assert peer.recv(10) == b"one"


def test_cut_resets_every_connection_and_the_next_one_works(proxy: Proxy) -> None:
    with connect(proxy) as peer:
        peer.sendall(b"one")
        assert peer.recv(10) == b"one"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            assert peer.recv(10) == b"?", "it was closed in good order"
    with connect(proxy) as peer:
        peer.sendall(b"two")
        assert peer.recv(10) == b"two"
