"""Rescue: after a broker has come back, jobs that it parked while it started are sent on.

A broker that keeps its metadata in Mnesia (every one before 4.2, by default) starts its quorum
queues before all its bindings are back. A job that came due while the broker was down may be
dead-lettered in that moment, find no way, and be parked in `unrouted`: seen in 1 of about 45
restarts of RabbitMQ 3.10.8 under load. Whoever reconnects sends such jobs on. Those of topics that
are really gone stay, for a person.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from rabbitdelay.address import Address
from rabbitdelay.core.topology import Topology
from rabbitdelay.core.unrouted import Unrouted
from rabbitdelay.errors import RabbitDelayError
from rabbitdelay.sync.administration import Administrator
from rabbitdelay.sync.blocking import connected
from rabbitdelay.sync.connection import logger
from rabbitdelay.sync.unrouted import UnroutedQueue


@dataclass(frozen=True, slots=True)
class OfTopicsThatAreThere:
    """Chooses the jobs whose topic has its ready queue."""

    administrator: Administrator
    topology: Topology
    _answers: dict[str, bool] = field(default_factory=dict)

    def takes(self, unrouted: Unrouted) -> bool:
        """Whether it is one of them."""
        topic = unrouted.topic
        if topic is None:
            return False
        if topic not in self._answers:
            ready = self.administrator.count(self.topology.ready_queue(topic))
            self._answers[topic] = ready is not None
        return self._answers[topic]


def rescue(addresses: Sequence[Address], topology: Topology) -> int:
    """Send on the jobs of topics that are there; return how many."""
    with connected(addresses) as connection:
        administrator = Administrator(connection)
        if not administrator.count(topology.unrouted):
            return 0
        choice = OfTopicsThatAreThere(administrator, topology)
        return UnroutedQueue(connection, topology).retry(choice).sent


def rescue_in_background(addresses: Sequence[Address], topology: Topology) -> None:
    """Do it on a thread of its own; a user who may not is left alone."""

    def run() -> None:
        try:
            if sent := rescue(addresses, topology):
                logger.warning("%d jobs were parked in unrouted, and are on their way again", sent)
        except RabbitDelayError as error:
            logger.info("could not look into unrouted: %s", error)

    threading.Thread(target=run, name="rabbitdelay-rescue", daemon=True).start()
