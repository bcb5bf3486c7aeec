"""Declare the queues that messages need, several at a time, while other messages are published."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rabbitdelay.core.amqp import reply_codes
from rabbitdelay.core.publish.outbox import Outbox
from rabbitdelay.core.publish.pending import Pending, Target
from rabbitdelay.core.topology.objects import Part
from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.engine.confirms.stall_detector import StallDetector
from rabbitdelay.engine.connection import Connector, logger
from rabbitdelay.engine.topology.declarer import Declarer, flush_name
from rabbitdelay.engine.transport import Connection, Then

AT_ONCE = 4
"""Maximum number of concurrent setups. The first one of a connection runs alone, because it
declares the base of the namespace."""
WAIT_SECONDS = 0.25
"""Wait after a reply that a queue is not up yet."""
Fail = Callable[[Pending, Exception], None]


class Key(NamedTuple):
    """The queues that a message needs.

    Its type differs from that of a lane's name, so the outbox can keep messages under both.
    """

    queues: tuple[str, ...]
    may_found: bool
    """Whether a missing namespace is created for the message."""


class Declarations:
    """Declares queues for messages, which wait in the outbox by their key.

    On the transport's thread.
    """

    def __init__(
        self,
        connector: Connector,
        routes: Routes,
        outbox: Outbox,
        detector: StallDetector,
        *,
        fail: Fail,
        flush: Then,
        made: Then,
    ) -> None:
        self._connector = connector
        self._routes = routes
        self._outbox = outbox
        self._detector = detector
        self._fail = fail
        self._flush = flush
        self._made = made
        self._wanted: dict[Key, Sequence[Part]] = {}
        self._running: dict[Key, Declarer[bool]] = {}
        self._stalls: Counter[Key] = Counter()
        """Number of consecutive setups that were not answered."""

    def request(self, pending: Pending, parts: Sequence[Part]) -> None:
        """Set a message aside until these queues exist."""
        may_found = not isinstance(pending.route, Target) or pending.route.may_found
        key = Key(tuple(part.queue.name for part in parts), may_found)
        self._outbox.set_aside(key, pending)
        if key not in self._wanted:
            self._wanted[key] = parts
            self._start()

    def forget(self) -> None:
        """Forget everything, because the connection was lost."""
        self._wanted.clear()
        self._running.clear()
        self._stalls.clear()

    def restart_stalled(self, now: float) -> None:
        """Repeat, on other channels, the setups that the broker has not answered for too long."""
        stalled = [
            key
            for key, declarer in self._running.items()
            if self._detector.is_overdue(declarer.answered_at, now, self._stalls[key])
        ]
        for key in stalled:
            self._restart(key)
        if stalled:
            self._start()

    def _restart(self, key: Key) -> None:
        self._running.pop(key).abandon()
        parts = self._wanted.pop(key)
        if not self._outbox.has_aside(key):  # all its messages have timed out
            del self._stalls[key]
            return
        logger.warning(
            "publisher: no answer for %.0f s from %s; declaring again on another channel",
            self._detector.patience_seconds(self._stalls[key]),
            ", ".join(part.queue.name for part in parts),
        )
        self._stalls[key] += 1
        self._wanted[key] = parts  # last, because other setups may not depend on what stalled

    def _start(self) -> None:
        for key, parts in list(self._wanted.items()):
            connection = self._connector.connection
            if connection is None or len(self._running) >= (
                AT_ONCE if self._routes.has_base else 1
            ):
                return
            if key not in self._running:
                self._run(connection, key, parts)

    def _run(self, connection: Connection, key: Key, parts: Sequence[Part]) -> None:
        def done(result: bool | Exception) -> None:  # noqa: FBT001 - the conversation's result
            if self._running.get(key) is declarer:  # if not, the connection was lost
                self._done(key, result)

        # Puts must not wait for the leader of the log of deletes.
        with_streams = not any(self._stalls.values())
        conversation = self._routes.set_up(
            parts,
            with_streams=with_streams,
            may_found=key.may_found,
            flush=flush_name(connection),
        )
        declarer = self._running[key] = Declarer(connection, conversation, done, self._connector)
        declarer.start()

    def _done(self, key: Key, result: bool | Exception) -> None:  # noqa: FBT001 - the same
        declarer = self._running.pop(key)
        if declarer.round_trip_seconds is not None:
            self._detector.answered(declarer.round_trip_seconds)
        del self._stalls[key]
        if isinstance(result, Exception) and reply_codes.is_passing(str(result)):
            # The broker has just started: try again until the messages time out.
            self._connector.call_later(WAIT_SECONDS, self._start)
            return
        parts = self._wanted.pop(key)
        if isinstance(result, Exception):
            for pending in self._outbox.aside(key):
                self._fail(pending, result)
        else:
            self._routes.learn(parts, unstable=result, now=self._connector.monotonic())
            self._outbox.bring_back(key)
            self._made()
        self._start()
        self._connector.call_later(0, self._flush)
