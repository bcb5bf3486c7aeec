"""Check `unrouted` from time to time, and republish the jobs that are parked there.

Each publishing connection has a rescuer. The broker confirms a job that it parks because a queue
was deleted, so the publisher learns of the loss only here. core/parked/rescue_schedule.py decides
when to check, and engine/parked/rescue.py goes through the messages.

A client with `declare=False` declares nothing and takes nothing out of `unrouted`. If jobs are
parked, it looks for its queues again before the next put, which fails and names what is missing.
"""

from functools import partial

from rabbitdelay.core.amqp import reply_codes
from rabbitdelay.core.amqp.decode import Delivery, GetEmpty
from rabbitdelay.core.parked.rescue_schedule import SOON_SECONDS, UnroutedWatch
from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.engine.connection import Connector, logger
from rabbitdelay.engine.parked.rescue import Rescue, Submit
from rabbitdelay.engine.parked.rescue_guard import RescueGuard
from rabbitdelay.engine.transport import Channel, Closed, Then

STALLED_SECONDS = 60.0
"""Time without an answer of the broker after which a check or a pass is abandoned."""


class Rescuer:
    """Checks `unrouted` for one publisher, on the transport's thread."""

    def __init__(
        self, connector: Connector, routes: Routes, submit: Submit, guard: RescueGuard
    ) -> None:
        self._connector = connector
        self._guard = guard
        self._waiting: list[Then] = []
        """Functions to call once no pass is in progress."""
        self._routes = routes
        self._submit = submit
        self._watch = UnroutedWatch()
        self._rescue: Rescue | None = None
        self._began_at = 0.0
        self._look_at: float | None = None
        """Monotonic time of the next check; None without one."""
        self._asked_at: float | None = None
        """Monotonic time at which the broker was asked for the count; None once it has answered."""
        self._is_look_wanted = False
        """Whether another check was requested during a pass."""

    def published(self) -> None:
        """Schedule a check, because published messages may have been parked."""
        if not self._watch.is_busy:
            self._watch.is_busy = True
            self._look_later()

    def queues_made(self) -> None:
        """Schedule a check, because jobs may be parked for queues that were just declared."""
        self._watch.have_queues_changed = True
        self._look_at_the_latest(self._connector.monotonic() + SOON_SECONDS)

    def look_now(self) -> None:
        """Check at once, because a queue was declared or the broker is reachable again."""
        self._watch.have_queues_changed = True
        self._look()

    def disconnected(self) -> None:
        """Forget a pass in progress; another one starts with the next connection."""
        self._rescue = None
        self._look_at = self._asked_at = None
        self._is_look_wanted = False
        self._tell_that_it_ended()

    def when_ended(self, ended: Then) -> None:
        """Call a function once no pass is in progress."""
        if self._is_pass_under_way:
            self._waiting.append(ended)
        else:
            ended()

    def inbound(self, found: Delivery | GetEmpty) -> None:
        """Pass on the reply to a basic.get of the current pass."""
        if self._rescue is not None:
            self._rescue.inbound(found)

    # Checking

    def _look_later(self) -> None:
        self._look_at_the_latest(self._watch.next_look_at(self._connector.monotonic()))

    def _look_at_the_latest(self, at: float) -> None:
        """Check at this time, unless a check is due before."""
        if self._look_at is None or at < self._look_at:
            self._look_at = at
            seconds = max(0.0, at - self._connector.monotonic())
            self._connector.call_sometime(seconds, partial(self._look_if_due, at))

    def _look_if_due(self, at: float) -> None:
        if self._look_at == at:
            self._look()

    def _look(self) -> None:
        self._look_at = None
        connection = self._connector.connection
        if connection is None or not connection.is_open:
            return
        now = self._connector.monotonic()
        if self._guard.is_on:
            self._look_at_the_latest(now + SOON_SECONDS)
            return
        self._watch.begin_look(now)
        self._look_later()
        if self._asked_at is None or now - self._asked_at > STALLED_SECONDS:
            self._asked_at = now
            connection.open_channel(self._opened)

    @property
    def _is_pass_under_way(self) -> bool:
        rescue = self._rescue
        if (
            rescue is not None
            and self._connector.monotonic() - rescue.progressed_at > STALLED_SECONDS
        ):
            rescue.abandon()
            self._rescue = None
            self._tell_that_it_ended()
        return self._rescue is not None

    def _opened(self, channel: Channel) -> None:
        def counted(ready: int, _consumers: int) -> None:
            self._asked_at = None
            channel.close()
            self._counted(ready)

        def closed(_channel: Channel, _closed: Closed) -> None:
            self._asked_at = None  # the queue does not exist, so no jobs are parked

        channel.on_closed(closed)
        channel.count(self._routes.topology.unrouted, counted)

    def _counted(self, count: int) -> None:
        connection = self._connector.connection
        if connection is None or self._guard.is_on:
            return
        if self._is_pass_under_way:
            self._is_look_wanted |= self._watch.have_queues_changed
            return
        if not self._watch.look(count):
            return
        if not self._routes.may_declare:
            self._look_for_queues_again(count)
            return
        self._began_at = self._connector.monotonic()
        self._rescue = Rescue(
            connection,
            self._routes,
            self._submit,
            count,
            self._passed,
            monotonic=self._connector.monotonic,
        )
        self._rescue.start()

    def _passed(self, left: int) -> None:
        rescue, self._rescue = self._rescue, None
        self._watch.end_pass(left, self._connector.monotonic() - self._began_at)
        self._tell_that_it_ended()
        refused = None if rescue is None else rescue.refused
        if refused is not None and refused.code == reply_codes.ACCESS_REFUSED:
            self._look_for_queues_again(left)
        if self._is_look_wanted:
            self._is_look_wanted = False
            self.look_now()

    def _tell_that_it_ended(self) -> None:
        waiting, self._waiting = self._waiting, []
        for ended in waiting:
            ended()

    def _look_for_queues_again(self, count: int) -> None:
        """Forget which queues exist, so that the next put notices one that was deleted."""
        self._watch.end_pass(count, 0.0)
        self._routes.forget()
        logger.warning(
            "unrouted: %d jobs are parked because a queue on their route is missing (this client "
            "may not republish them; run `rabbitdelay unrouted list`)",
            count,
        )
