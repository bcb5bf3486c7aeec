"""Look after unresolved messages ten times a second: deadlines, new queues, stalls and backoffs."""

from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.engine.confirms.alarm import Alarm
from rabbitdelay.engine.confirms.answers import Answers
from rabbitdelay.engine.confirms.outgoing import Outgoing
from rabbitdelay.engine.confirms.resolver import Resolver
from rabbitdelay.engine.confirms.stalled_channels import StalledChannels
from rabbitdelay.engine.connection import Connector
from rabbitdelay.engine.topology.declarations import Declarations

TICK_SECONDS = 0.1
"""Interval of the checks."""


class Ticker:
    """Ticks while messages are unresolved, on the transport's thread."""

    def __init__(
        self,
        connector: Connector,
        outgoing: Outgoing,
        routes: Routes,
        *,
        resolver: Resolver,
        alarm: Alarm,
        answers: Answers,
        declarations: Declarations,
        stalled: StalledChannels,
    ) -> None:
        self._connector = connector
        self._outgoing = outgoing
        self._routes = routes
        self._resolver = resolver
        self._alarm = alarm
        self._answers = answers
        self._declarations = declarations
        self._stalled = stalled
        self._is_ticking = False

    def start(self) -> None:
        """Tick from now on, if any message is unresolved."""
        if not self._is_ticking and len(self._outgoing.outbox):
            self._is_ticking = True
            self._connector.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        now = self._connector.monotonic()
        self._resolver.look_at_the_time(now)
        self._routes.forget_stable(now)
        if self._alarm.reason is None:
            self._declarations.restart_stalled(now)
            self._stalled.look(now)
        if len(self._outgoing.lanes):
            self._answers.tend_lanes()
        self.start()
