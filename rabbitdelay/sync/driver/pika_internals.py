"""The undocumented parts of pika. No other file of the sync front end uses any of them.

- `SelectConnection._adapter_emit_data(data)` writes bytes to the socket.
- `SelectConnection._on_data_available(data)` is called with the bytes read from the socket.
- `SelectConnection.bytes_received` tells the heartbeat checker that the broker is alive.
- `SelectConnection._transport` is None before the socket is connected and after it is closed. It
  has `abort()`, `_sock`, and `_MAX_RECV_BYTES`, the maximum number of bytes per read.
- `SelectConnection._on_connection_workflow_done(result)` is called when connecting has ended.

pyproject.toml caps pika below the version that may change them.
tests/unit/sync/driver/test_pika_internals.py fails if one of them has changed.
"""

import socket
from collections.abc import Callable

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectionWorkflowAborted

RECEIVE_BYTES = 64 * 1024
"""Bytes per read. pika's 4 KiB hold eight small jobs, and every read wakes the threads."""


class RawConnection(pika.SelectConnection):
    """A SelectConnection whose bytes can be written and read directly."""

    _take_bytes: Callable[[bytes], None] | None = None

    def send_frames(self, data: bytes) -> None:
        """Send complete frames. pika's channels do not count published messages."""
        self._adapter_emit_data(data)

    def read_bytes(self, take: Callable[[bytes], None]) -> None:
        """Pass received bytes to `take` instead of pika; `pass_on` returns some to pika."""
        self._take_bytes = take
        setattr(self._transport, "_MAX_RECV_BYTES", RECEIVE_BYTES)  # noqa: B010 - not annotated

    def pass_on(self, data: bytes) -> None:
        """Pass bytes to pika."""
        super()._on_data_available(data)

    def cut(self) -> None:
        """Close the socket without waiting for the broker."""
        if self._transport is not None:
            self._transport.abort()

    def close_socket(self) -> None:
        """Close the socket without sending anything, and without notifying pika."""
        sock = getattr(self._transport, "_sock", None)
        if isinstance(sock, socket.socket):
            sock.close()

    def _on_data_available(self, data_in: bytes) -> None:
        if self._take_bytes is None:
            super()._on_data_available(data_in)
            return
        self.bytes_received += len(data_in)  # else pika considers a busy broker dead
        self._take_bytes(data_in)

    def _on_connection_workflow_done(
        self, conn_or_exc: pika.connection.Connection | Exception
    ) -> None:
        """Handle the end of connecting.

        After a close during the AMQP handshake, pika 1.4 passes the class of the error instead of
        an error, and its assertion on that ends the thread.
        """
        if conn_or_exc is AMQPConnectionWorkflowAborted:
            conn_or_exc = AMQPConnectionWorkflowAborted()
        super()._on_connection_workflow_done(conn_or_exc)
