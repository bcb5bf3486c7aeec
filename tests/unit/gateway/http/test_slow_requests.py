"""No client can hold a connection for ever, nor all of them."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from rabbitdelay.gateway.http import slow_requests
from rabbitdelay.gateway.http.asgi import App, Receive, Scope, Send
from rabbitdelay.gateway.http.slow_requests import ConnectionLimits, TimedProtocol, limited
from tests.support.patience import patience

PATIENT = ConnectionLimits()
"""Limits that no test reaches by itself."""
REQUEST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody"
HUGE = 8 * 1024 * 1024


async def echo(_scope: Scope, receive: Receive, send: Send) -> None:
    message = await receive()
    await _answer(send, message.get("body", b""))


async def refuse_unread(_scope: Scope, _receive: Receive, send: Send) -> None:
    await _answer(send, b"refused")


async def send_much(_scope: Scope, _receive: Receive, send: Send) -> None:
    await _answer(send, b"0" * HUGE)


async def _answer(send: Send, body: bytes) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(patience(10)):
        while not condition():  # noqa: ASYNC110 - uvicorn announces nothing
            await asyncio.sleep(0.005)


@dataclass
class Served:
    """A server in this process."""

    port: int
    state: ServerState
    peers: "list[Peer]" = field(default_factory=list)

    async def connect(self, first: bytes = b"") -> "Peer":
        """Connect, and send before the server can notice the connection."""
        sock = socket.create_connection(("127.0.0.1", self.port))
        sock.sendall(first)
        peer = Peer(*await asyncio.open_connection(sock=sock))
        self.peers.append(peer)
        return peer

    @property
    def connection(self) -> Any:  # noqa: ANN401 - uvicorn has several kinds
        """The server's side of the only connection."""
        (connection,) = self.state.connections
        return connection

    async def until_empty(self) -> None:
        await until(lambda: not self.state.connections)


@dataclass
class Peer:
    """A client that sends what it wants."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def rest(self) -> bytes:
        """Return everything until the server closes the connection."""
        async with asyncio.timeout(patience(10)):
            return await self.reader.read()

    async def answer(self) -> bytes:
        """Return one answer, and leave the connection open."""
        async with asyncio.timeout(patience(10)):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            return head + await self.reader.readexactly(length)


@asynccontextmanager
async def serving(app: App, limits: ConnectionLimits) -> AsyncIterator[Served]:
    config = Config(
        app,
        http=limited(TimedProtocol, limits),
        h11_max_incomplete_event_size=limits.max_header_bytes,
        timeout_keep_alive=limits.keep_alive_seconds,
        lifespan="off",
        log_config=None,
    )
    config.load()
    state = ServerState()

    def protocol() -> asyncio.Protocol:
        made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
            config=config, server_state=state, app_state={}
        )
        return made

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    served = Served(server.sockets[0].getsockname()[1], state)
    try:
        yield served
    finally:
        for peer in served.peers:
            peer.writer.transport.abort()
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        await server.wait_closed()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def problem(answer: bytes) -> tuple[int, str]:
    """Return the status and the type of a problem; its headers are those of every answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert b"content-type: application/problem+json" in lines
    assert b"x-content-type-options: nosniff" in lines
    assert b"connection: close" in lines
    assert not [line for line in lines if line.startswith(b"server:")]
    found = json.loads(body)
    assert int(head.split()[1]) == found["status"]
    return found["status"], found["type"].removeprefix("/problems/")


@pytest.mark.parametrize("sent", [b"G", b"GET / HTTP/1.1\r\nHost: local", b"GET / HTTP/1.1\r\n"])
def test_headers_that_do_not_arrive_are_refused(sent: bytes) -> None:
    async def scenario() -> None:
        async with serving(echo, replace(PATIENT, header_seconds=0.05)) as served:
            peer = await served.connect(sent)
            assert problem(await peer.rest()) == (408, "request-timeout")

    run(scenario())


def test_a_byte_now_and_then_does_not_extend_the_time() -> None:
    async def scenario() -> None:
        async with serving(echo, replace(PATIENT, header_seconds=0.1)) as served:
            peer = await served.connect(b"GET / HTTP/1.1\r\n")
            rest = asyncio.create_task(peer.rest())
            while not rest.done():
                peer.send(b"a: b\r\n")
                await asyncio.sleep(0.01)
            # What is sent to a closed connection resets it, and then the answer may be lost.
            if not isinstance(rest.exception(), ConnectionError):
                assert problem(rest.result()) == (408, "request-timeout")

    run(scenario())


def test_a_connection_without_a_request_is_closed() -> None:
    async def scenario() -> None:
        async with serving(echo, replace(PATIENT, header_seconds=0.05)) as served:
            peer = await served.connect()
            assert await peer.rest() == b""

    run(scenario())


def test_the_second_request_has_the_same_time() -> None:
    async def scenario() -> None:
        async with serving(echo, PATIENT) as served:
            peer = await served.connect()
            peer.send(REQUEST)
            assert (await peer.answer()).endswith(b"body")
            served.connection.limits = replace(PATIENT, header_seconds=0.05)
            peer.send(b"POST / HTTP/1.1\r\n")
            assert problem(await peer.rest()) == (408, "request-timeout")

    run(scenario())


def test_an_answer_has_no_deadline() -> None:
    async def scenario() -> None:
        began, may_answer = asyncio.Event(), asyncio.Event()

        async def slow(scope: Scope, receive: Receive, send: Send) -> None:
            began.set()
            await may_answer.wait()
            await echo(scope, receive, send)

        async with serving(slow, PATIENT) as served:
            peer = await served.connect()
            peer.send(REQUEST)
            await began.wait()
            assert served.connection._deadline is None
            may_answer.set()
            assert (await peer.answer()).endswith(b"body")

    run(scenario())


def test_an_idle_connection_is_closed() -> None:
    async def scenario() -> None:
        async with serving(echo, replace(PATIENT, keep_alive_seconds=0)) as served:
            peer = await served.connect()
            peer.send(REQUEST)
            assert (await peer.rest()).endswith(b"body")

    run(scenario())


def test_the_rest_of_a_refused_body_is_thrown_away() -> None:
    """Were the connection closed at once, the client might not see why."""

    async def scenario() -> None:
        async with serving(refuse_unread, PATIENT) as served:
            peer = await served.connect()
            peer.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
            assert (await peer.answer()).endswith(b"refused")
            peer.send(b"0" * 1_000_000 + REQUEST)
            assert (await peer.answer()).endswith(b"refused")

    run(scenario())


def test_a_refused_body_that_goes_on_for_ever_is_cut_off() -> None:
    async def scenario() -> None:
        async with serving(refuse_unread, replace(PATIENT, discard_seconds=0.1)) as served:
            peer = await served.connect()
            peer.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
            await peer.answer()
            rest = asyncio.create_task(peer.rest())
            while not rest.done():
                peer.send(b"0")
                await asyncio.sleep(0.01)
            assert isinstance(rest.exception(), ConnectionError) or rest.result() == b""
            await served.until_empty()

    run(scenario())


def test_a_client_that_does_not_read_its_answer_is_cut_off() -> None:
    async def scenario() -> None:
        async with serving(send_much, replace(PATIENT, stall_seconds=0.1)) as served:
            peer = await served.connect()
            peer.send(REQUEST)  # of the answer, the client's buffers take a part
            await until(lambda: served.state.total_requests > 0)
            await served.until_empty()

    run(scenario())


def test_reading_some_of_an_answer_starts_the_deadline_again() -> None:
    async def scenario() -> None:
        async with serving(send_much, PATIENT) as served:
            peer = await served.connect()
            peer.send(REQUEST)
            await until(lambda: bool(served.state.connections))
            await until(lambda: bool(served.connection.flow.write_paused))
            transport = served.connection.transport
            unread = transport.get_write_buffer_size()
            while transport.get_write_buffer_size() == unread:
                await peer.reader.read(65_536)
            served.connection._expire()
            assert not transport.is_closing()
            served.connection._expire()  # nothing was read meanwhile
            assert transport.is_closing()

    run(scenario())


def test_a_client_that_reads_gets_a_long_answer() -> None:
    async def scenario() -> None:
        async with serving(send_much, replace(PATIENT, stall_seconds=5.0)) as served:
            peer = await served.connect()
            peer.send(REQUEST)
            assert len(await peer.answer()) > HUGE

    run(scenario())


def test_large_headers_are_refused() -> None:
    async def scenario() -> None:
        async with serving(echo, replace(PATIENT, max_header_bytes=1000)) as served:
            peer = await served.connect()
            peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"0" * 2000)
            assert problem(await peer.rest()) == (431, "headers-too-large")

    run(scenario())


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\x00: d\r\n\r\n",
        b"GET /\r\n HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +4\r\n\r\nbody",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbodyXX0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nbody\r\n0\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused_without_an_error(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Among these are requests that two servers would read differently: smuggled requests."""

    async def scenario() -> None:
        async with serving(echo, PATIENT) as served:
            peer = await served.connect()
            peer.send(sent)
            assert problem(await peer.rest()) == (400, "invalid-http")
            await served.until_empty()

    run(scenario())
    assert not [record for record in caplog.records if record.levelno > logging.WARNING]


def test_nonsense_after_the_answer_ends_the_connection_without_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with serving(refuse_unread, PATIENT) as served:
            peer = await served.connect()
            peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            assert (await peer.answer()).endswith(b"refused")
            peer.send(b"nonsense\r\n")
            assert await peer.rest() == b""
            await served.until_empty()

    run(scenario())
    assert not [record for record in caplog.records if record.levelno > logging.WARNING]


def test_more_connections_than_allowed_are_told_to_try_again() -> None:
    async def scenario() -> None:
        async with serving(echo, replace(PATIENT, max_connections=2)) as served:
            first, second = [await served.connect() for _ in range(2)]
            for peer in (first, second):
                peer.send(REQUEST)
                await peer.answer()
            third = await served.connect()
            third.send(REQUEST)
            refused = await third.rest()
            assert b"503" in refused.split(b"\r\n")[0]
            assert b"retry-after: " in refused.lower()
            assert json.loads(refused.partition(b"\r\n\r\n")[2])["type"] == "/problems/overloaded"
            first.send(REQUEST)
            assert (await first.answer()).endswith(b"body")
            first.writer.close()
            await until(lambda: len(served.state.connections) == 1)
            fourth = await served.connect()
            fourth.send(REQUEST)
            assert (await fourth.answer()).endswith(b"body")

    run(scenario())


def test_far_more_connections_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_requests, "SPARE_CONNECTIONS", 1)

    async def scenario() -> None:
        async with serving(echo, replace(PATIENT, max_connections=1)) as served:
            peers = [await served.connect() for _ in range(2)]
            third = await served.connect()
            third.send(REQUEST)
            with suppress(ConnectionError):  # whether it is reset depends on the kernel
                assert await third.rest() == b""
            peers[0].send(REQUEST)
            assert (await peers[0].answer()).endswith(b"body")

    run(scenario())
