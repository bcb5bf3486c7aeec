"""The orderly end of a consuming connection, which loses neither copies nor acks."""

from functools import partial

from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.acks.ack_proof import AckProof
from rabbitdelay.engine.acks.ack_sender import AckSender
from rabbitdelay.engine.connection import Connector, logger
from rabbitdelay.engine.consume.channels import ConsumerChannels
from rabbitdelay.engine.settle.lease_ledger import LeaseLedger

PROOF_SECONDS = 2.0
"""Time for the broker to prove that it has all acks, before the connection is closed."""
LOOK_SECONDS = 0.02
"""Interval at which copies in flight are looked for."""


class OrderlyEnd:
    """Closes a consuming connection, on the transport's thread."""

    def __init__(
        self,
        connector: Connector,
        ledger: LeaseLedger,
        ack_sender: AckSender,
        channels: ConsumerChannels,
        topology: Topology,
    ) -> None:
        self._connector = connector
        self._ledger = ledger
        self._ack_sender = ack_sender
        self._channels = channels
        self._topology = topology

    def begin(self, deadline: float) -> None:
        """Wait for the copies in flight, because their messages can be acknowledged afterwards."""
        # Checked before the flush, because acks of copies confirmed in between need another flush.
        is_any_leaving = self._ledger.is_any_leaving()
        self._ack_sender.flush(everything=True)
        if is_any_leaving and self._connector.monotonic() < deadline:
            self._connector.call_later(LOOK_SECONDS, partial(self.begin, deadline))
        else:
            self._prove(deadline)

    def _prove(self, deadline: float) -> None:
        """Close when the broker has proved that it has all settlements, or after a timeout."""
        ack_proof = self._channels.prove(self._topology, self._connector.close)
        seconds = min(PROOF_SECONDS, max(0.0, deadline - self._connector.monotonic()))
        self._connector.call_later(seconds, partial(self._close_unproven, ack_proof))

    def _close_unproven(self, ack_proof: AckProof) -> None:
        if ack_proof.missing:
            logger.warning(
                "consumer: closed without proof that the broker has all acknowledgements "
                "(%d queues did not answer; finished jobs may be redelivered)",
                ack_proof.missing,
            )
        ack_proof.end()
