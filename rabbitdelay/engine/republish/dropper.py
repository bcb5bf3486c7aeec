"""Drop jobs that were deleted, and tell those who wait for a response."""

from collections.abc import Callable

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.core.work.retry import Dropped
from rabbitdelay.engine.settle.lease_ledger import LeaseLedger
from rabbitdelay.engine.settle.response_sender import ResponseSender


class Dropper:
    """Drops the deleted jobs of one consumer. Thread-safe."""

    def __init__(
        self,
        ledger: LeaseLedger,
        responses: ResponseSender,
        death: Callable[[Lease], Death | None],
    ) -> None:
        self.death = death
        """Returns why a job is dead, as far as this client knows the log of deletes."""
        self._ledger = ledger
        self._responses = responses

    def drop(self, lease: Lease, death: Death) -> Dropped:
        """Acknowledge a deleted job instead of handing it out or giving it back."""
        self._ledger.delete(lease)
        self._responses.publish_failure(lease.job, death.value)
        return Dropped(death.value)
