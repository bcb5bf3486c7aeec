"""Publish the copies of jobs that are retried, released or buried.

The original message is acknowledged when its copy is confirmed, so no job is lost in between. If a
retry cannot be published, the job stays leased and publishing is tried again, by the rules of
core/settle/republish_retries.py.
"""

import threading
from collections.abc import Callable
from functools import partial

from rabbitdelay.core.consume.leases import Do, Lease
from rabbitdelay.core.settle import republish_retries
from rabbitdelay.core.settle.failure import Failure
from rabbitdelay.core.settle.republish_retries import BuryNow, DeadLetter, Return, TryLater
from rabbitdelay.core.work.retry import Again, Fate, GiveUp
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.republish.copies import Copy, CopyMaker, CopyPublisher
from rabbitdelay.engine.republish.dropper import Dropper
from rabbitdelay.engine.settle.lease_ledger import LeaseLedger
from rabbitdelay.engine.settle.response_sender import ResponseSender
from rabbitdelay.engine.transport import Then
from rabbitdelay.errors import NotAJob
from rabbitdelay.system_time import TimeSource

WAIT_SECONDS = 1.0
"""Delay before a message whose copy was refused is returned, because the broker redelivers it at
once."""
MAX_ROOM = 1_000
"""Maximum number of jobs that wait to be published while others are prefetched in their place."""


class Republisher:
    """Publishes the copies of the jobs of one consumer. Thread-safe."""

    def __init__(
        self,
        ledger: LeaseLedger,
        responses: ResponseSender,
        dropper: Dropper,
        maker: CopyMaker,
        publisher: CopyPublisher,
        *,
        later: Callable[[float, Then], None],
        make_room: Callable[[Lease], None],
        monotonic: TimeSource,
    ) -> None:
        self._ledger = ledger
        self._responses = responses
        self._dropper = dropper
        self._maker = maker
        self._publisher = publisher
        self._later = later
        """Schedules a function on the transport's thread, from any thread."""
        self._make_room = make_room
        """Prefetches another job in place of one that waits to be published."""
        self._monotonic = monotonic
        self._lock = threading.RLock()
        self._waiting: set[Copy] = set()
        self._is_stopped = False

    def publish(
        self, lease: Lease, fate: Again | GiveUp, why: Failure | None, future: Future[Fate]
    ) -> None:
        """Publish the copy that a fate requires, and settle the job when it is confirmed."""
        if not (isinstance(fate, Again) and fate.is_same_attempt):
            self._ledger.count(fate)
        copy = self._maker.make(lease, fate, why, future)
        if isinstance(fate, GiveUp):
            self._responses.publish_failure(lease.job, fate.reason, why)
        if copy.is_too_long:
            self._failed(copy, NotAJob("its headers leave no room for those of rabbitdelay"))
        else:
            self._publish(copy)

    def stop(self) -> None:
        """Return the waiting jobs to the broker, and from now on those that would have to wait."""
        with self._lock:
            self._is_stopped = True
            while self._waiting:
                self._ledger.not_copied(self._waiting.pop().lease, Do.NACK)

    def _publish(self, copy: Copy) -> None:
        self._publisher.publish(copy, partial(self._resolved, copy))

    # Results, usually on the publisher's thread

    def _resolved(self, copy: Copy, error: Exception | None) -> None:
        if error is not None:
            self._failed(copy, error)
            return
        self._ledger.copied(copy.lease)
        if not copy.future.done():
            copy.future.set_result(copy.fate)

    def _failed(self, copy: Copy, error: Exception) -> None:
        """Keep the job, bury it or return it, and fail the future."""
        if isinstance(copy.fate, GiveUp):
            self._settle(copy, Do.DEAD_LETTER, error)
        else:
            self._retry_failed(copy, error)
        if not copy.future.done():
            copy.future.set_exception(error)

    def _retry_failed(self, copy: Copy, error: Exception) -> None:
        with self._lock:
            step = republish_retries.after_failure(copy.tries, error, self._monotonic())
            if self._is_stopped and not isinstance(step, DeadLetter):
                step = Return()
            match step:
                case TryLater(seconds):
                    self._keep(copy, seconds, error)
                case BuryNow():
                    self._bury(copy, error)
                case Return():
                    self._settle(copy, Do.NACK, error)
                case DeadLetter():
                    self._settle(copy, Do.DEAD_LETTER, error)

    def _keep(self, copy: Copy, seconds: float, error: Exception) -> None:
        job = copy.lease.job
        logger.warning(
            "job %s (%s): retry not published, trying again in %.3g s (%s)",
            *(job.id, job.topic, seconds, error),
        )
        self._waiting.add(copy)
        self._later(seconds, partial(self._try_again, copy))
        if copy.tries.count == 1 and len(self._waiting) <= MAX_ROOM:
            self._make_room(copy.lease)

    def _try_again(self, copy: Copy) -> None:
        with self._lock:
            if copy not in self._waiting:
                return
            self._waiting.remove(copy)
        if copy.lease.leaving is None:
            return  # the connection was lost, and the broker redelivers the job
        death = self._dropper.death(copy.lease)
        if death is None:
            self._publish(copy)
        else:
            self._dropper.drop(copy.lease, death)

    def _bury(self, copy: Copy, error: Exception) -> None:
        """Bury a job whose retry cannot be published."""
        lease, job = copy.lease, copy.lease.job
        reason = f"attempt {job.attempt} failed, and its retry could not be published: {error}"
        logger.error("job %s (%s): buried (%s)", job.id, job.topic, reason)
        fate = lease.fate = GiveUp(reason)
        self.publish(lease, fate, copy.why, Future())

    def _settle(self, copy: Copy, do: Do, error: Exception) -> None:
        """Nack or dead-letter the original message, after a wait."""
        job = copy.lease.job
        event = "returned unchanged" if do is Do.NACK else "buried by the broker, without a reason"
        logger.warning("job %s (%s): %s (%s)", job.id, job.topic, event, error)
        wait = 0.0 if self._is_stopped else WAIT_SECONDS
        self._later(wait, partial(self._ledger.not_copied, copy.lease, do))
