"""Settle the jobs that a consumer has leased: finish, touch, release and bury them.

Any thread may settle a job.
"""

from collections.abc import Callable

from rabbitdelay.core.consume.leases import Lease, Leases
from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.core.settle.failure import Failure
from rabbitdelay.core.work.retry import Fate, GiveUp
from rabbitdelay.core.work.stats import StatsRecorder
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.republish.departures import Departures
from rabbitdelay.engine.republish.dropper import Dropper
from rabbitdelay.engine.settle.fates import Fates
from rabbitdelay.engine.settle.lease_ledger import LeaseLedger
from rabbitdelay.engine.settle.loss_callbacks import LossCallbacks
from rabbitdelay.engine.settle.response_sender import ResponseSender
from rabbitdelay.engine.transport_source import Waiter
from rabbitdelay.system_time import TimeSource


class Settlement:
    """Settles the jobs of one consumer, for handlers, callers of pop, and those who hand out."""

    def __init__(
        self,
        ledger: LeaseLedger,
        departures: Departures,
        dropper: Dropper,
        loss_callbacks: LossCallbacks,
        *,
        fates: Fates,
        responses: ResponseSender,
        clock: TimeSource,
        monotonic: TimeSource,
        waiter: Waiter | None,
    ) -> None:
        self.fates = fates
        self.responses = responses
        self.clock = clock
        self.monotonic = monotonic
        self.waiter = waiter
        """Waits for futures, if the transport is not a driver's."""
        self._ledger = ledger
        self._departures = departures
        self._dropper = dropper
        self._loss_callbacks = loss_callbacks
        # On the way of every job, which is why no call is passed on here:
        self.reserve = ledger.reserve
        """Starts the ttr of a job that is handed out; returns False if its lease was lost."""
        self.hand_back = ledger.hand_back
        """Returns a job unchanged to the broker."""

    @property
    def leases(self) -> Leases:
        """The leased jobs, including those that are only prefetched."""
        return self._ledger.leases

    @property
    def stats(self) -> StatsRecorder:
        """The counts of jobs by outcome."""
        return self._ledger.stats

    # Called by the job's handler or by the caller of pop

    def finish(self, lease: Lease) -> None:
        """Acknowledge a job."""
        self._ledger.finish(lease)
        self._loss_callbacks.forget(lease)

    def finish_returned(self, lease: Lease) -> None:
        """Acknowledge a job whose handler has returned, if need be when it is redelivered."""
        self._ledger.finish_returned(lease)
        self._loss_callbacks.forget(lease)

    def touch(self, lease: Lease) -> float:
        """Restart a job's ttr; return the new deadline."""
        return self._ledger.touch(lease)

    def release(
        self, lease: Lease, delay_ms: int | None = None, why: Failure | None = None
    ) -> Future[Fate]:
        """Retry a job after a delay or its backoff; bury it if no attempts are left."""
        return self.give_back(lease, self.fates.plan(lease, delay_ms), why)

    def bury(self, lease: Lease, reason: str, why: Failure | None = None) -> Future[Fate]:
        """Bury a job."""
        return self.give_back(lease, GiveUp(reason), why)

    def hand_back_unchanged(self, lease: Lease) -> Future[Fate]:
        """Return a reserved job to the broker, ready at once and with the same attempt."""
        return self._departures.hand_back(lease)

    def give_back(self, lease: Lease, fate: Fate, why: Failure | None = None) -> Future[Fate]:
        """Publish the copy that a fate requires, and settle the job when it is confirmed."""
        return self._departures.give_back(lease, fate, why)

    def time_left(self, lease: Lease) -> float:
        """Return the remaining ttr in seconds; 0 if the lease has ended."""
        return 0.0 if lease.is_over else max(0.0, lease.deadline - self.monotonic())

    def is_deleted(self, lease: Lease) -> bool:
        """Whether a job was deleted after it was handed out."""
        return self._dropper.death(lease) is not None

    def on_end(self, lease: Lease, callback: Callable[[], None]) -> None:
        """Register a callback for the loss of a lease; call it at once if the lease has ended."""
        self._loss_callbacks.add(lease, callback)

    # Called by those who hand out jobs

    def drop(self, lease: Lease, death: Death) -> None:
        """Acknowledge a deleted job that was not handed out."""
        self._dropper.drop(lease, death)

    def acknowledge_again(self, lease: Lease) -> bool:
        """Acknowledge the redelivery of an attempt that was finished here, as its ack was lost.

        Return whether this is one.
        """
        return self._ledger.acknowledge_again(lease)

    def adopt(self, lease: Lease, again: Lease, *, renew: bool) -> None:
        """Continue a lost lease with the job's redelivery."""
        self._ledger.adopt(lease, again, renew=renew)
