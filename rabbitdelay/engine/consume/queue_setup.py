"""The queues that are consumed: declared, or found, before their first use."""

from collections.abc import Callable, Iterable, Sequence

from rabbitdelay.core.topology import setup
from rabbitdelay.core.topology.objects import Part
from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.engine.connection import Connector
from rabbitdelay.engine.topology.declarer import Declarer, flush_name
from rabbitdelay.engine.transport import Then

OnReady = Callable[[Exception | None], None]
OnFound = Callable[[Sequence[Part] | Exception], None]


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

        Declarer(connection, setup.find(unknown), looked, self._connector).start()

    def forget(self) -> None:
        """Forget which queues exist, so that they are looked for again before their next use."""
        self._routes.forget()

    def _made(self, parts: Sequence[Part], *, is_unstable: bool) -> None:
        self._routes.learn(parts, unstable=is_unstable, now=self._connector.monotonic())
        if any(not part.is_stream for part in parts):
            self._rescue()
