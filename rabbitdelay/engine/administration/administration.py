"""Administration: creating, verifying and removing the queues of a namespace, as flows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from rabbitdelay.core.administration import namespaces, verification
from rabbitdelay.core.administration.definitions import Definitions, definitions
from rabbitdelay.core.administration.namespaces import NamespaceCounts, Removal
from rabbitdelay.core.administration.verification import Finding
from rabbitdelay.core.jobs import validation
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.objects import Declaration, Part
from rabbitdelay.core.topology.setup import (
    STABILISE_SECONDS,
    Announce,
    Declare,
    Remove,
    Round,
    setup,
)
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.administration.management_queries import ManagementQueries
from rabbitdelay.engine.administration.side_connection import Conversation, SideConnection
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.flow import Flow, Sleep
from rabbitdelay.engine.topology.declarer import OnRound, flush_name
from rabbitdelay.engine.transport import Connection
from rabbitdelay.errors import InvalidConfiguration, ManagementUnreachable, NamespaceMissing

Result = TypeVar("Result")
Delay = float | timedelta
OnProgress = Callable[[int, int], None]
"""Called with the number of completed steps and the total number of steps."""
NewConnection = Callable[[], SideConnection]


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects hold queues and topics, in addition to the base of every namespace."""

    hops: tuple[ladder.Hop, ...] = ()
    topics: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, topics: str | Iterable[str], delays: Iterable[Delay], *, all_hold_queues: bool
    ) -> "Selection":
        """Return a selection of these topics, and of the hold queues for these delays or of all."""
        names = [topics] if isinstance(topics, str) else topics
        hops = ladder.EVERY_HOP if all_hold_queues else (hop for d in delays for hop in _hops(d))
        checked = (validation.check_topic(name) for name in names)
        return cls(tuple(dict.fromkeys(hops)), tuple(dict.fromkeys(checked)))

    def parts(self, topology: Topology) -> list[Part]:
        """Return the selected queues, with the exchanges and bindings that lead to them."""
        holds = [topology.hold(hop) for hop in self.hops]
        return holds + [part for topic in self.topics for part in topology.topic(topic)]

    def declarations(self, topology: Topology) -> tuple[Declaration, ...]:
        """Return all declarations, including the base of the namespace."""
        return topology.plan(self.hops, self.topics)

    def with_existing(self, topology: Topology, found: Definitions) -> "Selection":
        """Return the selection, extended by the existing queues of the namespace."""
        hops, topics = verification.existing(topology, (row["name"] for row in found["queues"]))
        return Selection(
            tuple(dict.fromkeys((*self.hops, *hops))),
            tuple(dict.fromkeys((*self.topics, *topics))),
        )


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of `topology.apply()`."""

    hold_queues: int
    """Number of selected hold queues."""
    topics: int
    """Number of selected topics."""
    queues: int
    """Number of all selected queues, two of them for each topic."""
    made: int
    """Number of selected queues that were missing and have been declared."""


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of `topology.verify()`."""

    findings: tuple[Finding, ...]
    unchecked: str | None = None
    """The reason why bindings and policies were not checked; None if they were."""

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings about objects that are missing or different."""
        return tuple(finding for finding in self.findings if finding.is_problem)


class Administration:
    """Creates, verifies and removes one namespace, over a new connection for each call."""

    def __init__(
        self,
        connect: NewConnection,
        vhost: str,
        settings: ClientSettings,
        management: ManagementQueries,
    ) -> None:
        self._connect = connect
        self._vhost = vhost
        self.source = settings.transport
        """Waits, if the transport is not a driver's."""
        self._settings = settings
        self._topology = settings.topology
        self._management = management

    def apply(
        self, selection: Selection, on_progress: OnProgress | None, timeout: float | None
    ) -> Flow[Applied]:
        """Declare missing queues, and wait until jobs can safely be put through them."""
        if not self._settings.declare:
            raise InvalidConfiguration("topology.apply() declares queues: leave out declare=False")
        parts = selection.parts(self._topology)
        total = len(selection.declarations(self._topology))
        counted = _Counted(Declare, total, on_progress)

        def begin(connection: Connection) -> Conversation[bool]:
            flush = flush_name(connection)
            return setup(self._topology, parts, with_base=True, may_declare=True, flush=flush)

        if (yield from self._converse(begin, timeout, counted.add)):
            seconds = self._settings.stabilise_seconds
            yield Sleep(STABILISE_SECONDS if seconds is None else seconds)
        return Applied(len(selection.hops), len(selection.topics), len(parts), counted.announced)

    def export(self, selection: Selection, vhost: str | None) -> Definitions:
        """Return the selection as RabbitMQ definitions."""
        return definitions(selection.declarations(self._topology), vhost=vhost or self._vhost)

    def verify(self, selection: Selection, timeout: float | None) -> Flow[Verification]:
        """Compare the objects on the broker with the expected ones."""
        try:
            found = yield from self._management.definitions(self._topology)
        except ManagementUnreachable as error:
            wanted = selection.declarations(self._topology)
            findings = yield from self._converse(lambda _: verification.ask(wanted), timeout)
            return Verification(tuple(findings), str(error))
        expected = self.export(selection.with_existing(self._topology, found), None)
        return Verification(tuple(verification.compare(expected, found)))

    def remove(
        self, *, force: bool, dry_run: bool, on_progress: OnProgress | None, timeout: float | None
    ) -> Flow[Removal]:
        """Remove the namespace; without `force`, only if it is not in use."""
        plan = yield from self._plan_removal(timeout)
        if not force:
            plan.check()
        if not dry_run:
            counted = _Counted(Remove, len(plan.queues) + len(plan.exchanges), on_progress)
            yield from self._converse(
                lambda _: namespaces.remove(self._topology, plan, with_jobs=force),
                timeout,
                counted.add,
            )
        return plan

    def exists(self) -> Flow[bool]:
        """Whether the namespace exists."""
        return self._converse(lambda _: namespaces.exists(self._topology), None)

    def namespaces(self) -> Flow[list[NamespaceCounts]]:
        """List the namespaces of the vhost."""
        rows = yield from self._management.ask(lambda api: api.versioned_queues())
        return namespaces.listed(rows)

    def require(self) -> Flow[None]:
        """Raise NamespaceMissing unless the namespace exists."""
        if not (yield from self.exists()):
            raise (yield from self._missing())

    def _missing(self) -> Flow[NamespaceMissing]:
        try:
            found = yield from self.namespaces()
        except ManagementUnreachable:
            return NamespaceMissing(namespaces.missing_text(self._topology, None))
        others = [one.namespace for one in found]
        return NamespaceMissing(namespaces.missing_text(self._topology, others))

    def _plan_removal(self, timeout: float | None) -> Flow[Removal]:
        found = yield from self._management.definitions(self._topology)
        plan = namespaces.removal(self._topology, found["queues"], found["exchanges"])
        if not plan.queues and not plan.exchanges:
            raise (yield from self._missing())
        return (
            yield from self._converse(
                lambda _: namespaces.count_jobs(self._topology, plan), timeout
            )
        )

    def _converse(
        self,
        begin: Callable[[Connection], Conversation[Result]],
        timeout: float | None,
        on_round: OnRound = lambda _: None,
    ) -> Flow[Result]:
        seconds = self._settings.timeout if timeout is None else validation.check_timeout(timeout)
        connection = self._connect()
        conversation = connection.converse(begin, seconds, on_round)
        return connection.use(conversation, self._settings.connect_timeout)


class _Counted:
    """Counts the answered commands of one kind; on the transport's thread."""

    def __init__(
        self, kind: type[Declare | Remove], total: int, on_progress: OnProgress | None
    ) -> None:
        self.announced = 0
        self._kind = kind
        self._done = 0
        self._total = total
        self._on_progress = on_progress or (lambda _done, _total: None)

    def add(self, commands: Round) -> None:
        """Count the commands of an answered round."""
        self.announced += sum(one.queues for one in commands if isinstance(one, Announce))
        done = sum(isinstance(one, self._kind) for one in commands)
        if done:
            self._done = min(self._done + done, self._total)
            self._on_progress(self._done, self._total)


def _hops(delay: Delay) -> Sequence[ladder.Hop]:
    return ladder.hops(ladder.to_digits(validation.check_delay_ms(delay)))
