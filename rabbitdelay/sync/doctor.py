"""The doctor: collects the facts about a broker, and returns what is wrong with it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from pika import BlockingConnection

from rabbitdelay import discovery
from rabbitdelay.address import Address
from rabbitdelay.core.doctor import facts as doctor_facts
from rabbitdelay.core.doctor.checks import judge
from rabbitdelay.core.doctor.facts import BrokerSettings, Facts, NodeFacts, Rights, Unknown
from rabbitdelay.core.doctor.report import Check
from rabbitdelay.core.jobs import validation
from rabbitdelay.core.topology import verification
from rabbitdelay.core.topology.counts import Listing, TopicCounts, read_listing
from rabbitdelay.core.topology.definitions import Definitions, definitions
from rabbitdelay.core.topology.topology import QueueType, Topology
from rabbitdelay.core.topology.verification import Finding
from rabbitdelay.engine.topology import management_api
from rabbitdelay.engine.topology.management_api import Management
from rabbitdelay.errors import BrokerProcessError, ManagementUnreachable, PermissionRefused
from rabbitdelay.models import DEFAULT_TTR_MS
from rabbitdelay.private_broker import configuration, find_running, settings
from rabbitdelay.sync import probes
from rabbitdelay.sync.administration import Administrator
from rabbitdelay.sync.blocking import connected, server_version
from rabbitdelay.sync.overview import count_topic

SECOND_LOOK_SECONDS = 6.0
"""The broker's counts are up to 5 s old: two looks must be further apart than that."""
NOT_VISIBLE = "cannot be seen from here"

_NO_API = Unknown("needs the management API")

OnStep = Callable[[str], None]
Fact = TypeVar("Fact")


def examine(
    url: str | None = None,
    *,
    namespace: str = "rabbitdelay",
    queue_type: QueueType = "quorum",
    management_url: str | None = None,
    max_delay: float | timedelta | None = None,
    longest_ttr: float | timedelta = DEFAULT_TTR_MS / 1000,
    on_step: OnStep | None = None,
) -> tuple[Check, ...]:
    """Check a broker and a namespace on it, and return one Check or more for each thing.

    Makes nothing on the broker and changes no job. It blocks for some seconds; from asyncio call it
    with `asyncio.to_thread`.

    Args:
        url: As for Client.
        namespace: Prefix of every exchange and queue name.
        queue_type: As for Client.
        management_url: Address of the management API; by default port 15672 of the broker's host.
        max_delay: As for Client.
        longest_ttr: Longest ttr of any job, in seconds, for the check of `consumer_timeout`.
        on_step: Called with a few words before each step.

    Raises:
        ConnectionFailed: There is no connection to the broker.
    """
    topology = Topology(namespace, queue_type, validation.check_max_delay_ms(max_delay))
    ttr_ms = validation.check_ttr_ms(longest_ttr)
    addresses = discovery.locate(url)
    api = Management(management_api.locate(management_url, addresses), addresses[0].vhost)
    with connected(addresses) as connection:
        surgery = _Surgery(connection, addresses, api, topology, on_step or (lambda _: None))
        return judge(surgery.facts(ttr_ms))


@dataclass(frozen=True, slots=True)
class _Surgery:
    """One examination, over one connection and the management API."""

    connection: BlockingConnection
    addresses: tuple[Address, ...]
    api: Management
    topology: Topology
    on_step: OnStep

    @property
    def administrator(self) -> Administrator:
        return Administrator(self.connection)

    def facts(self, longest_ttr_ms: int) -> Facts:
        self.on_step("asking the management API")
        found = _fact(lambda: self.api.definitions(f"{self.topology.namespace}."))
        rows = found if isinstance(found, Unknown) else found["queues"]
        listing = rows if isinstance(rows, Unknown) else read_listing(self.topology, rows)
        self.on_step("comparing exchanges and queues")
        declarations = self._declarations(found)
        is_there = not doctor_facts.is_empty(declarations)
        publishing, log = self._probe(is_there=is_there)
        return Facts(
            topology=self.topology,
            user=self.addresses[0].user,
            vhost=self.addresses[0].vhost,
            longest_ttr_ms=longest_ttr_ms,
            version=server_version(self.connection) or Unknown("the broker does not say"),
            management=found if isinstance(found, Unknown) else None,
            feature_flags=self._ask(found, "administrator", self._feature_flags),
            settings=self._settings(),
            nodes=self._ask(found, "monitoring", self._nodes),
            queues=_NO_API if isinstance(rows, Unknown) else doctor_facts.read_queues(rows),
            policed=_NO_API if isinstance(found, Unknown) else tuple(verification.policed(found)),
            clock_ahead_seconds=self._ask(found, "management", self.api.clock_ahead_seconds),
            rights=self._rights(publishing, log, is_there=is_there),
            is_blocked=publishing.is_blocked,
            takes_large_messages=publishing.takes_large_messages,
            declarations=tuple(declarations),
            log_answers=log.answers,
            topics=_NO_API if isinstance(listing, Unknown) else self._topics(listing),
            unrouted=self._unrouted(is_there=is_there),
            stuck=_NO_API if isinstance(listing, Unknown) else self._stuck(listing),
        )

    def _feature_flags(self) -> dict[str, str]:
        return doctor_facts.read_feature_flags(self.api.feature_flags())

    def _nodes(self) -> tuple[NodeFacts, ...]:
        return doctor_facts.read_nodes(self.api.nodes())

    def _declarations(self, found: Definitions | Unknown) -> list[Finding]:
        if isinstance(found, Unknown):
            return self.administrator.run(verification.ask(self.topology.base()))
        names = (queue["name"] for queue in found["queues"])
        everything = self.topology.plan(*verification.existing(self.topology, names))
        expected = definitions(everything, vhost=self.addresses[0].vhost)
        return verification.compare(expected, found)

    def _probe(self, *, is_there: bool) -> tuple[probes.Publishing, probes.LogProbe]:
        if not is_there:
            empty = Unknown("the namespace is not there to try it with")
            return probes.Publishing(None, empty, empty), probes.LogProbe(None, empty)
        self.on_step("publishing a message that is dropped")
        publishing = probes.try_publishing(self.addresses, self.topology)
        self.on_step("reading the end of the log of deletes")
        return publishing, probes.try_log(self.addresses, self.topology)

    def _rights(
        self, publishing: probes.Publishing, log: probes.LogProbe, *, is_there: bool
    ) -> Rights | Unknown:
        if not is_there:
            return Unknown("the namespace is not there to try them with")
        configure = probes.may_configure(self.administrator, self.topology)
        return Rights(configure, publishing.may_write, log.may_read)

    def _settings(self) -> BrokerSettings | Unknown:
        """Ask the node itself, where it is a private one of this machine."""
        private = find_running()
        ports = [address.port for address in self.addresses]
        nodes = private.nodes if private is not None else ()
        node = next((node for node in nodes if node.layout.amqp_port in ports), None)
        if node is None or not management_api.is_loopback(self.addresses[0].host):
            return Unknown(NOT_VISIBLE)
        self.on_step("asking the node for its settings")
        try:
            values = settings.read_settings(node)
        except BrokerProcessError as error:
            return Unknown(f"{NOT_VISIBLE} ({error})")
        return BrokerSettings(
            values.get(configuration.DEAD_LETTER_RETRY),
            values.get(settings.CONSUMER_TIMEOUT),
            values.get(settings.MAX_MESSAGE_SIZE),
        )

    def _topics(self, listing: Listing) -> tuple[TopicCounts, ...] | Unknown:
        self.on_step("counting jobs")
        try:
            counts = [
                count_topic(self.administrator, self.topology, topic, listing)
                for topic in listing.topics
            ]
        except PermissionRefused as error:
            return Unknown(str(error))
        return tuple(count for count in counts if count is not None)

    def _unrouted(self, *, is_there: bool) -> int | Unknown:
        try:
            counted = self.administrator.count(self.topology.unrouted)
        except PermissionRefused as error:
            return Unknown(str(error))
        if counted is None and is_there:
            return Unknown(f"there is no queue {self.topology.unrouted}")
        return counted.ready if counted else 0

    def _stuck(self, first: Listing) -> dict[str, int] | Unknown:
        """Look a second time where jobs are on their way: most of them only pass."""
        if not first.dead_lettering:
            return {}
        self.on_step("looking again whether jobs move on")
        self.connection.sleep(SECOND_LOOK_SECONDS)
        rows = _fact(lambda: self.api.queues(self.topology.prefix))
        if isinstance(rows, Unknown):
            return rows
        second = read_listing(self.topology, rows)
        return doctor_facts.read_stuck(first.dead_lettering, second.dead_lettering)

    @staticmethod
    def _ask(found: object, tag: str, read: Callable[[], Fact]) -> Fact | Unknown:
        """Ask the management API, unless it did not answer before."""
        if isinstance(found, Unknown):
            return _NO_API
        answer = _fact(read)
        if isinstance(answer, Unknown):
            return Unknown(f"needs a user with the {tag} tag: {answer.reason}")
        return answer


def _fact(read: Callable[[], Fact]) -> Fact | Unknown:
    try:
        return read()
    except ManagementUnreachable as error:
        return Unknown(str(error))
