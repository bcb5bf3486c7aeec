"""The parts of pika that its documentation does not promise. No other file of this front uses any.

- `SelectConnection._adapter_emit_data(data)` writes bytes to the socket.
- `SelectConnection._on_data_available(data)` is called with the bytes that were read.
- `SelectConnection.bytes_received` is what the heartbeat checker takes for a sign of life.
- `SelectConnection._transport` is None before the socket is connected and after it is closed. It
  has `abort()`, `_sock`, and `_MAX_RECV_BYTES`, the most that is read at a time.

pyproject.toml caps pika below the version that may change them, and
tests/unit/sync/test_pika_internals.py fails when one of them is different.
"""

import socket
from collections.abc import Callable

import pika

RECEIVE_BYTES = 64 * 1024
"""pika reads 4 KiB at a time: eight small jobs, and the threads are woken for each piece."""


class RawConnection(pika.SelectConnection):
    """A SelectConnection whose bytes are written, and read, past pika's own objects."""

    _take_bytes: Callable[[bytes], None] | None = None

    def send_frames(self, data: bytes) -> None:
        """Send whole frames. pika's channels keep no count of what is sent on them."""
        self._adapter_emit_data(data)

    def read_bytes(self, take: Callable[[bytes], None]) -> None:
        """Hand over bytes as they come, instead of to pika: see `pass_on`."""
        self._take_bytes = take
        setattr(self._transport, "_MAX_RECV_BYTES", RECEIVE_BYTES)  # noqa: B010 - not annotated

    def pass_on(self, data: bytes) -> None:
        """Let pika have bytes after all."""
        super()._on_data_available(data)

    def cut(self) -> None:
        """Close the socket without waiting for the broker."""
        if self._transport is not None:
            self._transport.abort()

    def close_socket(self) -> None:
        """Close the socket without a word on it, and without telling pika."""
        sock = getattr(self._transport, "_sock", None)
        if isinstance(sock, socket.socket):
            sock.close()

    def _on_data_available(self, data_in: bytes) -> None:
        if self._take_bytes is None:
            super()._on_data_available(data_in)
            return
        self.bytes_received += len(data_in)  # else its heartbeat takes a busy broker for dead
        self._take_bytes(data_in)
