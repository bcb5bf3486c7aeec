"""The parts that settle the jobs of one consuming connection, put together."""

from collections.abc import Callable

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.core.work.error_policies import Policies
from rabbitdelay.core.work.reply_queues import ReplyQueues
from rabbitdelay.engine.connection import Connector
from rabbitdelay.engine.publish.publisher import Publisher
from rabbitdelay.engine.republish.copies import CopyMaker, CopyPublisher, KeepKnown
from rabbitdelay.engine.republish.departures import Departures
from rabbitdelay.engine.republish.dropper import Dropper
from rabbitdelay.engine.republish.republisher import Republisher
from rabbitdelay.engine.settle.fates import Fates
from rabbitdelay.engine.settle.lease_ledger import LeaseLedger
from rabbitdelay.engine.settle.loss_callbacks import LossCallbacks
from rabbitdelay.engine.settle.response_sender import ResponseSender
from rabbitdelay.engine.settle.settlement import Settlement
from rabbitdelay.engine.transport import Then
from rabbitdelay.engine.transport_source import Waiter
from rabbitdelay.system_time import TimeSource

COPY_TIMEOUT_SECONDS = 30.0
"""Timeout for publishing the copy of a job; then the message itself is returned instead."""


class SettlingSide:
    """Combines the settlement of a consumer's jobs with what gives them up."""

    def __init__(
        self,
        connector: Connector,
        ledger: LeaseLedger,
        loss_callbacks: LossCallbacks,
        topology: Topology,
        *,
        publisher: Publisher,
        policy: Callable[[str], Policies],
        reply_queues: ReplyQueues,
        death: Callable[[Lease], Death | None],
        keep_known: KeepKnown,
        make_room: Callable[[Lease], None],
        clock: TimeSource,
        waiter: Waiter | None,
    ) -> None:
        monotonic, timeout = connector.monotonic, COPY_TIMEOUT_SECONDS
        fates = Fates(policy, death)
        responses = ResponseSender(
            topology, publisher, reply_queues, ledger.stats, timeout=timeout, monotonic=monotonic
        )
        dropper = Dropper(ledger, responses, death)
        republisher = Republisher(
            ledger,
            responses,
            dropper,
            CopyMaker(fates, clock, monotonic),
            CopyPublisher(publisher, topology, keep_known, timeout=timeout, monotonic=monotonic),
            later=_later(connector),
            make_room=make_room,
            monotonic=monotonic,
        )
        self.departures = Departures(ledger, fates, dropper, republisher, loss_callbacks)
        self.settlement = Settlement(
            ledger,
            self.departures,
            dropper,
            loss_callbacks,
            fates=fates,
            responses=responses,
            clock=clock,
            monotonic=monotonic,
            waiter=waiter,
        )


def _later(connector: Connector) -> Callable[[float, Then], None]:
    """Return a function that schedules another one after a delay, from any thread."""

    def later(seconds: float, function: Then) -> None:
        def set_timer() -> None:
            connector.call_later(seconds, function)

        connector.call(set_timer)

    return later
