"""Give up leased jobs: released, buried and timed-out ones, and messages that are not jobs.

A job that is given up is published as a copy, and its message is acknowledged when the copy is
confirmed, so no job is lost in between. A job that was deleted meanwhile is dropped instead.
"""

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.jobs.states import Event
from rabbitdelay.core.settle import failure
from rabbitdelay.core.settle.failure import Failure
from rabbitdelay.core.work.retry import Again, Dropped, Fate, GiveUp
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.republish.dropper import Dropper
from rabbitdelay.engine.republish.republisher import Republisher
from rabbitdelay.engine.settle.fates import Fates
from rabbitdelay.engine.settle.lease_ledger import LeaseLedger
from rabbitdelay.engine.settle.loss_callbacks import LossCallbacks
from rabbitdelay.errors import TimedOut

UNCHANGED = Again(0, is_same_attempt=True)
MOST_RETURNS = 5
"""Number of deliveries after which a job is handed back as a copy, well below DELIVERY_LIMIT."""


class Departures:
    """Gives up the jobs of one consumer. Thread-safe."""

    def __init__(
        self,
        ledger: LeaseLedger,
        fates: Fates,
        dropper: Dropper,
        republisher: Republisher,
        loss_callbacks: LossCallbacks,
    ) -> None:
        self._ledger = ledger
        self._fates = fates
        self._dropper = dropper
        self._republisher = republisher
        self._loss_callbacks = loss_callbacks

    def give_back(self, lease: Lease, fate: Fate, why: Failure | None) -> Future[Fate]:
        """Give a job back or bury it; the future is done when its copy is confirmed."""
        event = Event.RELEASE if isinstance(fate, Again) else Event.BURY
        return self._leave(lease, event, fate, why)

    def hand_back(self, lease: Lease) -> Future[Fate]:
        """Return a job to the broker unchanged, with the same attempt.

        The broker requeues its message. RabbitMQ 3.10 counts that towards the delivery limit, so a
        message that was returned several times is replaced by a copy, whose count is 0.
        """
        if lease.redeliveries >= MOST_RETURNS:
            return self._leave(lease, Event.HAND_BACK, UNCHANGED, None)
        self._ledger.return_unchanged(lease)
        self._loss_callbacks.forget(lease)
        returned: Future[Fate] = Future()
        returned.set_result(UNCHANGED)
        return returned

    def expire(self) -> list[tuple[Lease, Fate]]:
        """Give back the jobs whose deadline has passed; return them with their fates."""
        return [(lease, self._time_out(lease)) for lease in self._ledger.expire()]

    def bury_unread(self, lease: Lease, reason: str) -> None:
        """Bury a message that is not a job."""
        logger.warning("topic %s: message buried (%s)", lease.job.topic, reason)
        self._ledger.leave_unread(lease)
        # Deletes do not apply to it, and its id may not even be text.
        self._republisher.publish(lease, GiveUp(reason), None, Future())

    def return_all(self) -> None:
        """Return the jobs to the broker whose copies are not in flight."""
        self._republisher.stop()
        self._loss_callbacks.call(self._ledger.hand_back_all())

    def abandon(self) -> None:
        """Drop all leases in a forked child: they are the parent's."""
        self._ledger.abandon()
        self._loss_callbacks.abandon()

    def _leave(self, lease: Lease, event: Event, fate: Fate, why: Failure | None) -> Future[Fate]:
        self._ledger.leave(lease, event)
        self._loss_callbacks.forget(lease)
        future: Future[Fate] = Future()
        self._publish(lease, fate, why, future)
        return future

    def _time_out(self, lease: Lease) -> Fate:
        why = failure.timeout(lease.job.ttr)
        fate = self._fates.plan(lease, error=TimedOut(why.text))
        self._loss_callbacks.call([lease])
        return self._publish(lease, fate, why, Future())

    def _publish(self, lease: Lease, fate: Fate, why: Failure | None, future: Future[Fate]) -> Fate:
        """Publish the copy of a job that is given back or buried, unless the job was deleted."""
        death = self._dropper.death(lease)
        if death is not None:
            fate = lease.fate = Dropped(death.value)
            self._dropper.drop(lease, death)
            future.set_result(fate)
            return fate
        assert not isinstance(fate, Dropped)
        lease.fate = fate
        self._republisher.publish(lease, fate, why, future)
        return fate
