"""The queues that are consumed: declared, or found, before their first use."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from rabbitdelay.core.topology import setup
from rabbitdelay.core.topology.objects import Part
from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.engine.connection import Connector
from rabbitdelay.engine.topology.declarer import Declarer, flush_name
from rabbitdelay.engine.transport import Connection, Then

OnReady = Callable[[Exception | None], None]
OnFound = Callable[[Sequence[Part] | Exception], None]
FOUND_AT_ONCE = 128
"""Maximum number of queues that are looked for at once, because each takes a channel."""


class QueueSetup:
    """Declares and finds queues on the consuming connection, on the transport's thread.

    Without a connection nothing happens: the caller is notified of the next one.
    """

    def __init__(
        self, connector: Connector, routes: Routes, rescue: Then, *, may_found: bool
    ) -> None:
        self._connector = connector
        self._routes = routes
        self._rescue = rescue
        """Has jobs republished that were parked while a queue was missing."""
        self._may_found = may_found
        """Whether a missing namespace is created: by workers, but not by pops."""
        self._finds = _Finds(None)

    def make(self, parts: Iterable[Part], ready: OnReady, *, may_found: bool = False) -> None:
        """Declare the missing ones of these queues, and wait until a crash cannot lose their jobs.

        A namespace that does not exist is an error, unless this consumer or this call may create
        it.
        """
        connection, wanted = self._connector.open_connection, tuple(parts)
        if connection is None:
            return
        if self._routes.are_made(wanted):
            ready(None)
            return

        def made(result: bool | Exception) -> None:  # noqa: FBT001 - the conversation's result
            if not isinstance(result, Exception):
                self._made(wanted, is_unstable=result)
            ready(result if isinstance(result, Exception) else None)

        conversation = self._routes.set_up(
            wanted, may_found=may_found or self._may_found, flush=flush_name(connection)
        )
        Declarer(connection, conversation, made, self._connector).start()

    def find(self, parts: Sequence[Part], found: OnFound) -> None:
        """Find out which of these queues exist, without declaring any."""
        connection = self._connector.open_connection
        unknown = [part for part in parts if not self._routes.are_made((part,))]
        if connection is None:
            return
        if not unknown:
            found(parts)
            return

        def looked(result: tuple[Part, ...] | Exception) -> None:
            if isinstance(result, Exception):
                found(result)
                return
            if self._routes.has_base:
                self._routes.learn(result, unstable=False, now=self._connector.monotonic())
            found([part for part in parts if part not in unknown or part in result])

        def ended(result: tuple[Part, ...] | Exception) -> None:
            finds.ended(len(unknown))
            looked(result)

        finds = self._finds_on(connection)
        finder = Declarer(connection, setup.find(unknown), ended, self._connector)
        finds.begin(len(unknown), finder.start)

    def forget(self) -> None:
        """Forget which queues exist, so that they are looked for again before their next use."""
        self._routes.forget()

    def _finds_on(self, connection: Connection) -> "_Finds":
        if self._finds.connection is not connection:
            self._finds = _Finds(connection)
        return self._finds

    def _made(self, parts: Sequence[Part], *, is_unstable: bool) -> None:
        self._routes.learn(parts, unstable=is_unstable, now=self._connector.monotonic())
        if any(not part.is_stream for part in parts):
            self._rescue()


class _Finds:
    """The searches for queues on one connection, of which only some run at once."""

    def __init__(self, connection: Connection | None) -> None:
        self.connection = connection
        self._running = 0
        """Number of queues that are being looked for."""
        self._waiting: deque[tuple[int, Then]] = deque()

    def begin(self, count: int, start: Then) -> None:
        """Start to look for so many queues, now or when earlier searches have ended."""
        self._waiting.append((count, start))
        self._go_on()

    def ended(self, count: int) -> None:
        """Note the end of a search."""
        self._running -= count
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting:
            count, start = self._waiting[0]
            if self._running and self._running + count > FOUND_AT_ONCE:
                return
            self._waiting.popleft()
            self._running += count
            start()
