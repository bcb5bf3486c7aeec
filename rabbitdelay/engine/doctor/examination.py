"""The examination: collects facts about a broker, and returns the checks of `doctor`."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rabbitdelay.address import Address
from rabbitdelay.core.administration import verification
from rabbitdelay.core.administration.counts import Listing, TopicCounts, read_listing
from rabbitdelay.core.administration.definitions import Definitions, definitions
from rabbitdelay.core.administration.verification import Finding
from rabbitdelay.core.doctor import facts as doctor_facts
from rabbitdelay.core.doctor.checks import judge
from rabbitdelay.core.doctor.facts import BrokerSettings, Facts, Rights, Unknown
from rabbitdelay.core.doctor.report import Check
from rabbitdelay.core.topology.setup import Answers, Round
from rabbitdelay.engine.administration.job_counts import count_topics
from rabbitdelay.engine.administration.local_node import FindLocalNode
from rabbitdelay.engine.administration.management_api import ManagementApi
from rabbitdelay.engine.administration.management_queries import ManagementQueries
from rabbitdelay.engine.administration.queue_queries import QueueQueries
from rabbitdelay.engine.administration.side_connection import SideConnection
from rabbitdelay.engine.background import in_background
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.doctor import probes
from rabbitdelay.engine.flow import Awaited, Flow, Sleep, Wait
from rabbitdelay.errors import (
    BrokerProcessError,
    ManagementUnreachable,
    PermissionRefused,
    RabbitDelayError,
)

SECOND_LOOK_SECONDS = 6.0
"""Time between two listings. Longer than 5 s, because the counts are up to 5 s old."""
NOT_VISIBLE = "cannot be seen from here"

_NO_API = Unknown("needs the management API")

OnStep = Callable[[str], None]
Fact = TypeVar("Fact")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Examination:
    """Examines a broker once, without creating anything on it or changing a job."""

    connect: Callable[[], SideConnection]
    settings: ClientSettings
    addresses: Sequence[Address]
    management: ManagementQueries
    find_local_node: FindLocalNode
    on_step: OnStep

    def checks(self, longest_ttr_ms: int) -> Flow[tuple[Check, ...]]:
        """Collect the facts, and return one or more checks for each of them."""
        connection = self.connect()
        facts = yield from connection.use(
            self._facts(connection, longest_ttr_ms), self.settings.connect_timeout
        )
        return judge(facts)

    def _facts(self, connection: SideConnection, longest_ttr_ms: int) -> Flow[Facts]:
        self.on_step("asking the management API")
        found = yield from _fact(self.management.definitions(self.settings.topology))
        rows = found if isinstance(found, Unknown) else found["queues"]
        listing = rows if isinstance(rows, Unknown) else read_listing(self.settings.topology, rows)
        self.on_step("comparing exchanges and queues")
        declarations = yield from self._declarations(connection, found)
        is_there = not doctor_facts.is_empty(declarations)
        publishing, log = yield from self._probe(is_there=is_there)
        return Facts(
            topology=self.settings.topology,
            user=self.addresses[0].user,
            vhost=self.addresses[0].vhost,
            longest_ttr_ms=longest_ttr_ms,
            version=_version(connection),
            management=found if isinstance(found, Unknown) else None,
            feature_flags=(
                yield from self._ask(
                    found,
                    "administrator",
                    lambda api: doctor_facts.read_feature_flags(api.feature_flags()),
                )
            ),
            settings=(yield from self._settings()),
            nodes=(
                yield from self._ask(
                    found, "monitoring", lambda api: doctor_facts.read_nodes(api.nodes())
                )
            ),
            queues=_NO_API if isinstance(rows, Unknown) else doctor_facts.read_queues(rows),
            policed=_NO_API if isinstance(found, Unknown) else tuple(verification.policed(found)),
            clock_ahead_seconds=(
                yield from self._ask(found, "management", lambda api: api.clock_ahead_seconds())
            ),
            rights=(yield from self._rights(connection, publishing, log, is_there=is_there)),
            is_blocked=publishing.is_blocked,
            takes_large_messages=publishing.takes_large_messages,
            declarations=tuple(declarations),
            log_answers=log.answers,
            topics=(yield from self._topics(connection, listing)),
            unrouted=(yield from self._unrouted(connection, is_there=is_there)),
            stuck=(yield from self._stuck(listing)),
        )

    def _declarations(
        self, connection: SideConnection, found: Definitions | Unknown
    ) -> Flow[list[Finding]]:
        if isinstance(found, Unknown):
            return (
                yield from self._converse(
                    connection, verification.ask(self.settings.topology.base())
                )
            )
        names = (queue["name"] for queue in found["queues"])
        everything = self.settings.topology.plan(
            *verification.existing(self.settings.topology, names)
        )
        expected = definitions(everything, vhost=self.addresses[0].vhost)
        return verification.compare(expected, found)

    def _probe(self, *, is_there: bool) -> Flow[tuple[probes.Publishing, probes.LogProbe]]:
        """Try to publish and consume on separate connections, because a refusal may close one."""
        if not is_there:
            empty = Unknown("cannot be tried, because the namespace does not exist")
            return probes.Publishing(None, empty, empty), probes.LogProbe(None, empty)
        self.on_step("publishing a message that is dropped")
        publisher = self.connect()
        publishing = yield from publisher.use(
            probes.try_publishing(publisher, self.settings.topology, self.settings.timeout),
            self.settings.connect_timeout,
        )
        self.on_step("reading the end of the log of deletes")
        return publishing, (yield from self._try_log())

    def _try_log(self) -> Flow[probes.LogProbe]:
        reader = self.connect()
        try:
            return (
                yield from reader.use(
                    probes.try_log(reader, self.settings.topology, self.settings.timeout),
                    self.settings.connect_timeout,
                )
            )
        except RabbitDelayError:
            return probes.LogProbe()  # the missing answer is the finding

    def _rights(
        self,
        connection: SideConnection,
        publishing: probes.Publishing,
        log: probes.LogProbe,
        *,
        is_there: bool,
    ) -> Flow[Rights | Unknown]:
        if not is_there:
            return Unknown("cannot be tried, because the namespace does not exist")
        configure = yield from self._converse(
            connection, probes.may_configure(self.settings.topology)
        )
        return Rights(configure, publishing.may_write, log.may_read)

    def _settings(self) -> Flow[BrokerSettings | Unknown]:
        """Read the settings from the node, if it runs on this machine."""
        node = self.find_local_node(self.addresses)
        if node is None:
            return Unknown(NOT_VISIBLE)
        self.on_step("asking the node for its settings")
        try:
            settings: BrokerSettings = yield Wait(
                in_background(node.read_settings), awaited=Awaited.MACHINE
            )
        except BrokerProcessError as error:
            return Unknown(f"{NOT_VISIBLE} ({error})")
        return settings

    def _topics(
        self, connection: SideConnection, listing: Listing | Unknown
    ) -> Flow[tuple[TopicCounts, ...] | Unknown]:
        if isinstance(listing, Unknown):
            return _NO_API
        self.on_step("counting jobs")
        queries = QueueQueries(connection, self.settings.timeout)
        try:
            counts = yield from count_topics(
                queries, self.settings.topology, listing.topics, listing
            )
        except PermissionRefused as error:
            return Unknown(str(error))
        return tuple(count for count in counts.values() if count is not None)

    def _unrouted(self, connection: SideConnection, *, is_there: bool) -> Flow[int | Unknown]:
        try:
            counted = yield from QueueQueries(connection, self.settings.timeout).count(
                self.settings.topology.unrouted
            )
        except PermissionRefused as error:
            return Unknown(str(error))
        if counted is None and is_there:
            return Unknown(f"there is no queue {self.settings.topology.unrouted}")
        return counted.ready if counted else 0

    def _stuck(self, first: Listing | Unknown) -> Flow[dict[str, int] | Unknown]:
        """List jobs in transit a second time, because most of them are only passing through."""
        if isinstance(first, Unknown):
            return _NO_API
        if not first.dead_lettering:
            return {}
        self.on_step("checking again whether jobs move on")
        yield Sleep(SECOND_LOOK_SECONDS)
        second = yield from _fact(self.management.listing(self.settings.topology))
        if isinstance(second, Unknown):
            return second
        return doctor_facts.read_stuck(first.dead_lettering, second.dead_lettering)

    def _ask(
        self, found: object, tag: str, query: Callable[[ManagementApi], Fact]
    ) -> Flow[Fact | Unknown]:
        """Query the management API, unless it failed before."""
        if isinstance(found, Unknown):
            return _NO_API
        answer = yield from _fact(self.management.ask(query))
        if isinstance(answer, Unknown):
            return Unknown(f"needs a user with the {tag} tag: {answer.reason}")
        return answer

    def _converse(
        self, connection: SideConnection, conversation: Generator[Round, Answers, Result]
    ) -> Flow[Result]:
        return connection.converse(lambda _: conversation, self.settings.timeout)


def _version(connection: SideConnection) -> str | Unknown:
    return connection.broker_version or Unknown("the broker does not report it")


def _fact(flow: Flow[Fact]) -> Flow[Fact | Unknown]:
    try:
        return (yield from flow)
    except ManagementUnreachable as error:
        return Unknown(str(error))
