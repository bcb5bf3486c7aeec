"""The connection of a client: whether it is still there, and whether it has received its answer.

A job whose client is cut off must not wait for its ttr. uvicorn tells an application when a client
leaves before the answer is complete, but not what becomes of the answer afterwards, while it is in
the buffers of both machines. This protocol watches that, for the answers that ask for it.

An answer counts as received when the client sends another request, closes its connection after it
has acknowledged every byte, or has acknowledged every byte for CERTAIN_SECONDS. It counts as not
received if the connection is reset before, or closed with bytes that were not acknowledged.

It relies on methods of uvicorn's H11Protocol that are not documented; a test fails when they
change.
"""

import asyncio
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rabbitdelay.gateway.http.asgi import App, Receive, Scope, Send
from rabbitdelay.gateway.http.slow_requests import TimedProtocol
from rabbitdelay.gateway.waiting.caller_gone import CallerGone

EXTENSION = "rabbitdelay.answer"
CERTAIN_SECONDS = 5.0
LOOK_SECONDS = 1.0
LINGER_SECONDS = 10.0
"""Time for which the end of a connection is observed that this side has closed."""
MOST_LINGERING = 1_000
"""Maximum number of such connections; the ends of others are not observed."""
UNACKNOWLEDGED_SECONDS = 30
"""Time after which the kernel resets a connection whose client acknowledges nothing."""


class AnswerWatch:
    """The answer to one request, on its way to the client."""

    def __init__(self) -> None:
        self.gone = CallerGone()
        """Set when the client has left before its answer was complete."""
        self.is_lost = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_wanted(self) -> bool:
        """Whether anything depends on the answer."""
        return bool(self._callbacks)

    def if_lost(self, callback: Callable[[], None]) -> None:
        """Call back if the client does not receive the answer, at once if that is known."""
        if self.is_lost:
            callback()
        else:
            self._callbacks.append(callback)

    def received(self) -> None:
        """Note that the client has the answer."""
        self._callbacks.clear()

    def lost(self) -> None:
        """Note that the client will not get the answer."""
        self.is_lost = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


def watch_of(scope: Scope) -> AnswerWatch | None:
    """Return the watch on a request's answer; None with another server or protocol."""
    found = scope.get("extensions", {}).get(EXTENSION)
    return found if isinstance(found, AnswerWatch) else None


class WatchedConnection(TimedProtocol):
    """One connection, and the answers on it that are not known to be received."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - of uvicorn
        super().__init__(*arguments, **options)
        self.app = self._watching(self.app)
        self._current: AnswerWatch | None = None
        """The request that is being answered."""
        self._answered: list[AnswerWatch] = []
        """The answers that are complete, and not known to be received."""
        self._answered_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._linger: _Linger | None = None

    # Called by asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Have the kernel notice a client that is gone without a word."""
        super().connection_made(transport)
        # Paused means that anything is unsent. With TLS, asyncio pauses at the limit itself, and 0
        # would pause a connection for ever.
        is_tls = transport.get_extra_info("sslcontext") is not None
        transport.set_write_buffer_limits(high=1 if is_tls else 0)
        sock = transport.get_extra_info("socket")
        if sock is not None and sys.platform == "linux":
            with suppress(OSError):
                sock.setsockopt(
                    socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_SECONDS * 1000
                )

    def data_received(self, data: bytes) -> None:
        """Handle a request, which shows that the answers before it were received."""
        self._received()
        super().data_received(data)

    def eof_received(self) -> None:
        """Handle the client's orderly end."""
        if not self._unacknowledged():
            self._received()
        super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        is_unsent = self.flow.write_paused
        super().connection_lost(exc)
        self._stop_timer()
        current, self._current = self._current, None
        if current is not None:
            current.lost()
            current.gone.set()
        answered, self._answered = self._answered, []
        linger, self._linger = self._linger, None
        if linger is not None and exc is None and not is_unsent:
            linger.begin(answered)
            return
        if linger is not None:
            linger.close()
        for watch in answered:
            watch.lost()

    # Called by uvicorn

    def on_response_complete(self) -> None:
        """Watch the answer that is complete."""
        watch, self._current = self._current, None
        if watch is not None and watch.is_wanted:
            self._answered.append(watch)
            self._answered_at = self.loop.time()
            if self.transport.is_closing():
                self._observe_end()
            elif self._timer is None:
                self._timer = self.loop.call_later(LOOK_SECONDS, self._look)
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        self._observe_end()
        super().timeout_keep_alive_handler()

    def shutdown(self) -> None:
        """Close the connection, because the server stops."""
        self._observe_end()
        super().shutdown()

    def _watching(self, app: App) -> App:
        """Return the application; each request has a watch in its scope."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            watch = self._current = AnswerWatch()
            scope.setdefault("extensions", {})[EXTENSION] = watch
            await app(scope, receive, send)

        return watched

    # Answers

    def _look(self) -> None:
        """Take an answer for received when every byte is acknowledged for long enough."""
        self._timer = None
        is_old = self.loop.time() - self._answered_at >= CERTAIN_SECONDS
        if is_old and not self._unacknowledged():
            self._received()
        elif self._answered:
            self._timer = self.loop.call_later(LOOK_SECONDS, self._look)

    def _received(self) -> None:
        if self._answered:
            self._stop_timer()
            for watch in self._answered:
                watch.received()
            self._answered.clear()

    def _unacknowledged(self) -> int:
        """Return the number of bytes that the client has not acknowledged, as far as is known."""
        sock = self.transport.get_extra_info("socket")
        buffered = self.transport.get_write_buffer_size()
        return buffered + (0 if sock is None else unacknowledged(sock.fileno()))

    def _observe_end(self) -> None:
        """Keep the socket, to see how a connection ends that this side closes."""
        if self._answered and self._linger is None and len(lingering) < MOST_LINGERING:
            sock = self.transport.get_extra_info("socket")
            with suppress(OSError, AttributeError):
                self._linger = _Linger(sock.dup(), self.loop)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Linger:
    """The end of a connection that this side has closed."""

    def __init__(self, open_socket: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._socket = open_socket
        self._loop = loop
        self._watches: list[AnswerWatch] = []
        self._timer: asyncio.TimerHandle | None = None
        lingering.add(self)

    def begin(self, watches: list[AnswerWatch]) -> None:
        """Send the end of the stream, and wait for the client's."""
        self._watches = watches
        try:
            self._socket.settimeout(0)
            self._socket.shutdown(socket.SHUT_WR)
            self._loop.add_reader(self._socket.fileno(), self._readable)
        except OSError:
            self._end(is_received=False)
            return
        self._timer = self._loop.call_later(LINGER_SECONDS, self._timed_out)

    def close(self) -> None:
        """Close the socket."""
        lingering.discard(self)
        self._socket.close()

    def _readable(self) -> None:
        try:
            data = self._socket.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            self._end(is_received=False)
            return
        if not data:
            self._end(is_received=not unacknowledged(self._socket.fileno()))

    def _timed_out(self) -> None:
        self._end(is_received=not unacknowledged(self._socket.fileno()))

    def _end(self, *, is_received: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self.close()
        for watch in self._watches:
            watch.received() if is_received else watch.lost()


lingering: set[_Linger] = set()
"""The connections that this side has closed, and whose end is observed."""


def unacknowledged(descriptor: int) -> int:
    """Return the number of bytes in a socket's buffer that the other side has not acknowledged.

    0 where the kernel does not tell, which is everywhere but on Linux.
    """
    if sys.platform != "linux" or descriptor < 0:
        return 0
    import fcntl  # noqa: PLC0415 - not on every system
    import termios  # noqa: PLC0415 - the same

    try:
        counted = fcntl.ioctl(descriptor, termios.TIOCOUTQ, b"\0" * 4)
    except OSError:
        return 0
    return int(struct.unpack("i", counted)[0])
