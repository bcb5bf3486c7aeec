"""A gateway behind a real socket, in this process."""

import asyncio
import http.client
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from rabbitdelay.gateway import GatewayApp, GatewaySettings
from rabbitdelay.gateway.gateway import Gateway
from rabbitdelay.gateway.server import GatewayServer, ServerSettings
from tests.support.memory.memory_back_end import MemoryBackEnd
from tests.support.patience import patience, wait_until

RECEIVE_BYTES = 4_096
"""Receive buffer of a client that is cut off in the middle of an answer."""


class ServedGateway:
    """A gateway, and clients that misbehave."""

    def __init__(self, app: GatewayApp, server: GatewayServer) -> None:
        self._app = app
        self._server = server
        self.port = server._socket.getsockname()[1]

    @property
    def gateway(self) -> Gateway:
        return self._app.gateway

    def ask(self, path: str, value: object, *, seconds: float = 30) -> tuple[int, Any]:
        """Send a POST request on a connection of its own; return the status and the JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience(seconds))
        try:
            connection.request(
                "POST", path, json.dumps(value), {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            body = answer.read()
            return answer.status, json.loads(body) if body else None
        finally:
            connection.close()

    def put(self, topic: str, body: object = None, **options: Any) -> str:  # noqa: ANN401 - passed on
        """Put a job; return its id."""
        status, answer = self.ask("/v1/jobs", {"topic": topic, "body": body, **options})
        assert status == 201, answer
        return str(answer["id"])

    def pop(self, topic: str, wait: float = 0) -> dict[str, Any] | None:
        """Pop a job."""
        status, answer = self.ask("/v1/pop", {"topics": topic, "wait": wait}, seconds=wait + 30)
        assert status in (200, 204), answer
        return answer["jobs"][0] if status == 200 else None

    def finish(self, lease: str) -> int:
        """Finish a job; return the status."""
        return self.ask("/v1/finish", {"lease": lease})[0]

    def client(self, *, receive_bytes: int | None = None) -> "RawClient":
        """Return a client on a plain socket."""
        return RawClient(self.port, receive_bytes)


class RawClient:
    """A client that does with its socket what it likes."""

    def __init__(self, port: int, receive_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(patience(30))
        self.socket.connect(("127.0.0.1", port))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, path: str, value: object, *headers: str) -> None:
        """Send a POST request."""
        body = json.dumps(value).encode()
        lines = [
            f"POST {path} HTTP/1.1",
            "Host: localhost",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *headers,
        ]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode() + body)

    def answer(self) -> tuple[int, bytes]:
        """Read one whole answer."""
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._receive()
        head, _, body = received.partition(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        (length,) = [int(line.split(":")[1]) for line in lines if "content-length" in line] or [0]
        while len(body) < length:
            body += self._receive()
        return int(lines[0].split()[1]), body

    def popped(self) -> dict[str, Any]:
        """Read the answer of a pop; return its job."""
        status, body = self.answer()
        assert status == 200, body
        return dict(json.loads(body)["jobs"][0])

    def _receive(self) -> bytes:
        received = self.socket.recv(65_536)
        assert received, "the connection was closed"
        return received

    def reset(self) -> None:
        """Close the connection at once, as a machine does that forgets it."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


@contextmanager
def served_gateway(settings: GatewaySettings | None = None) -> Iterator[ServedGateway]:
    """Serve a gateway on a broker in memory inside the block."""
    back_end = MemoryBackEnd()
    try:
        with served(GatewayApp(settings=settings, stabilise_seconds=0, **back_end.options)) as one:
            yield one
    finally:
        back_end.close()


@contextmanager
def served(app: GatewayApp) -> Iterator[ServedGateway]:
    """Serve a gateway inside the block, in a thread."""
    server = GatewayServer(app, ServerSettings(port=0))
    thread = threading.Thread(target=asyncio.run, args=[server.serve([server._socket])])
    thread.start()
    try:
        wait_until(lambda: server.started and _is_ready(app), seconds=20)
        yield ServedGateway(app, server)
    finally:
        server.should_exit = True
        thread.join(patience(20))
        assert not thread.is_alive(), "the gateway has not stopped"


def _is_ready(app: GatewayApp) -> bool:
    stats = app.stats()
    return stats is not None and stats.problem is None
