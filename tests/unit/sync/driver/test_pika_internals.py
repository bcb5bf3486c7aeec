"""A contract with pika: the undocumented parts in sync/driver/pika_internals.py are as it says."""

import inspect
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import closing

import pika
import pytest
from pika import spec
from pika.adapters.select_connection import IOLoop
from pika.exceptions import ConnectionOpenAborted
from pika.frame import Method, decode_frame
from pika.heartbeat import HeartbeatChecker

from rabbitdelay.sync.driver.pika_internals import RawConnection
from tests.support.patience import patience

BYTES = 10_000
DEFAULT_RECEIVE_BYTES = 4_096
HEADER = b"AMQP\x00\x00\x09\x01"


class ClientCut(Exception):
    """Return the reason why a connection is being closed."""


class Connected:
    """A connection to a silent socket, with pika's loop."""

    def __init__(self, listener: socket.socket) -> None:
        self.loop = IOLoop()
        host, port = listener.getsockname()
        self.errors: list[BaseException | str] = []
        """Why the connection did not open."""
        self.connection = RawConnection(
            pika.ConnectionParameters(host, port),
            on_open_error_callback=lambda _, error: self.errors.append(error),
            custom_ioloop=self.loop,
        )
        self.run_until(lambda: self.connection._transport is not None)
        self.peer, _ = listener.accept()
        self.peer.settimeout(patience(10))
        self.run_until(self.has_sent)  # pika sends while its loop runs
        assert self.peer.recv(len(HEADER)) == HEADER

    def run_until(self, is_true: Callable[[], bool]) -> None:
        def look() -> None:
            if is_true():
                self.loop.stop()
            else:
                self.loop.call_later(0.001, look)

        limit = self.loop.call_later(patience(10), self.loop.stop)
        look_first = self.loop.call_later(0, look)
        self.loop.start()
        self.loop.remove_timeout(limit)
        self.loop.remove_timeout(look_first)
        assert is_true()

    def has_sent(self) -> bool:
        readable, _, _ = select.select([self.peer], [], [], 0)
        return bool(readable)

    def close(self) -> None:
        self.peer.close()
        self.run_until(lambda: self.connection._transport is None)
        self.loop.close()


@pytest.fixture
def connected() -> Iterator[Connected]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        closing(Connected(listener)) as made,
    ):
        yield made


def test_received_bytes_are_passed_on_in_large_pieces_and_counted(connected: Connected) -> None:
    taken: list[bytes] = []
    connection = connected.connection
    connection.read_bytes(taken.append)
    connected.peer.sendall(b"x" * BYTES)  # before the loop runs, so that all of it can be read
    connected.run_until(lambda: sum(map(len, taken)) == BYTES)
    assert max(map(len, taken)) > DEFAULT_RECEIVE_BYTES
    assert connection.bytes_received >= BYTES


def test_bytes_are_written_past_pika(connected: Connected) -> None:
    connected.connection.send_frames(b"hello")
    connected.loop.call_later(0, connected.loop.stop)
    connected.loop.start()
    assert connected.peer.recv(5) == b"hello"


def test_bytes_passed_on_reach_pika(connected: Connected) -> None:
    """The broker begins the handshake, and pika answers."""
    connected.connection.read_bytes(connected.connection.pass_on)
    start = spec.Connection.Start(server_properties={"product": "a broker"})
    connected.peer.sendall(Method(0, start).marshal())
    connected.run_until(connected.has_sent)
    _, answer = decode_frame(connected.peer.recv(BYTES))
    assert isinstance(answer, Method)
    assert isinstance(answer.method, spec.Connection.StartOk)


def test_an_abort_closes_the_connection_without_a_handshake(connected: Connected) -> None:
    connected.connection._error = ClientCut()  # as on a connection that is already closed
    connected.connection.cut()
    connected.run_until(lambda: connected.connection._transport is None)
    assert connected.peer.recv(1) == b""


def test_a_close_during_the_handshake_is_reported_as_an_error_on_opening(
    connected: Connected,
) -> None:
    connected.connection.close()
    connected.run_until(lambda: bool(connected.errors))
    (error,) = connected.errors
    assert isinstance(error, ConnectionOpenAborted)


def test_the_socket_can_be_closed_without_pika(connected: Connected) -> None:
    transport = connected.connection._transport
    there = getattr(transport, "_sock", None)
    assert isinstance(there, socket.socket)
    spare = socket.socket()
    setattr(transport, "_sock", spare)  # noqa: B010 - pika goes on with its own afterwards
    connected.connection.close_socket()
    setattr(transport, "_sock", there)  # noqa: B010 - as above
    assert spare.fileno() == -1


def test_the_heartbeat_checker_counts_the_bytes() -> None:
    assert "bytes_received" in inspect.getsource(HeartbeatChecker)


def test_nothing_of_pika_is_overridden_by_accident() -> None:
    ours = {name for name in vars(RawConnection) if not name.startswith(("__", "_abc"))}
    overridden = {name for name in ours if hasattr(pika.SelectConnection, name)}
    assert overridden == {"_on_data_available", "_on_connection_workflow_done"}
