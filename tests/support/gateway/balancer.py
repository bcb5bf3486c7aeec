"""A load balancer in front of several gateways: each connection goes to the next one.

It has no stickiness and no health checks. A gateway that refuses the connection is skipped.
"""

import itertools
import socket
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.support.patience import patience


class Balancer:
    """Relays TCP connections to the gateways in turn."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._turns = itertools.cycle(ports)
        self._count = len(ports)
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(patience(10))

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            server = self._connect()
            if server is None:
                return
            with server:
                back = threading.Thread(target=_relay, args=[server, client], daemon=True)
                back.start()
                _relay(client, server)
                back.join()

    def _connect(self) -> socket.socket | None:
        for _ in range(self._count):
            with self._lock:
                port = next(self._turns)
            try:
                return socket.create_connection(("127.0.0.1", port))
            except OSError:
                continue
        return None


def _relay(source: socket.socket, target: socket.socket) -> None:
    """Pass on bytes until one side ends, and then end the other."""
    try:
        while received := source.recv(65_536):
            target.sendall(received)
    except OSError:
        pass
    for one in (source, target):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue
