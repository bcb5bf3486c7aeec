"""Publish the copies of jobs that are retried, released or buried.

The original message is acknowledged when its copy is confirmed, so no job is lost in between. If a
retry cannot be published, the job stays leased and publishing is tried again, by the rules of
core/settle/republish_retries.py.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from rabbitdelay.core.amqp import field_table
from rabbitdelay.core.consume.leases import Do, Lease
from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.publish.outbox import LadderEntry, Pending, Target
from rabbitdelay.core.settle import republish, republish_retries
from rabbitdelay.core.settle.failure import Failure
from rabbitdelay.core.settle.republish_retries import BuryNow, DeadLetter, Return, Tries, TryLater
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.core.work.retry import Again, Fate, GiveUp
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.publish.publisher import Publisher
from rabbitdelay.engine.transport import Then
from rabbitdelay.errors import NotAJob
from rabbitdelay.models import Job

WAIT_SECONDS = 1.0
"""Delay before a message whose copy was refused is returned, because the broker redelivers it at
once."""
MAX_HEADERS_BYTES = 126 * 1024
"""Maximum size of the headers. They have to fit into one frame, by default 128 KiB, or the broker
closes the connection. The other properties take at most 2 KiB."""
MAX_ROOM = 1_000
"""Maximum number of jobs that wait to be published while others are prefetched in their place."""


KeepKnown = Callable[[Job, int], Future[None]]
"""Keeps deletes of a job's id until a time in milliseconds, at which a copy of the job is due."""


class RepublisherOwner(Protocol):
    """The owner of the leases whose copies are published.

    The settlement implements it, and cannot be imported here, because it imports this file.
    """

    lock: threading.RLock
    death: Callable[[Lease], Death | None]
    keep_known: KeepKnown

    def max_attempts(self, topic: str, error: BaseException | None = None) -> int:
        """Return the maximum attempts of a topic's jobs that do not set their own."""

    def count(self, fate: Fate) -> None:
        """Count a job that is retried, released or buried."""

    def copied(self, lease: Lease) -> None:
        """Acknowledge a job whose copy is confirmed."""

    def not_copied(self, lease: Lease, do: Do) -> None:
        """Settle a job whose copy cannot be published."""

    def drop_leaving(self, lease: Lease, death: Death, future: Future[Fate]) -> Fate:
        """Drop a job that was deleted in the meantime."""

    def publish_failure(self, job: Job, reason: str, why: Failure | None = None) -> None:
        """Publish a failure as the response to a job that is buried."""


@dataclass(slots=True, eq=False)
class _Copy:
    """A copy in flight, or one that waits to be published."""

    lease: Lease
    fate: Again | GiveUp
    why: Failure | None
    message: Message
    known_until_ms: int | None
    """The copy's due time, if deletes of its id have to be kept until then; else None."""
    tries: Tries
    future: Future[Fate]
    """Done when the copy is confirmed; fails if the first attempt to publish it fails."""


class Republisher:
    """Publishes the copies of the jobs of one consumer. Thread-safe."""

    def __init__(
        self,
        owner: RepublisherOwner,
        topology: Topology,
        publisher: Publisher,
        *,
        later: Callable[[float, Then], object],
        make_room: Callable[[Lease], None],
        timeout: float,
        clock: Callable[[], float],
    ) -> None:
        self._owner = owner
        self._topology = topology
        self._publisher = publisher
        self._later = later
        self._make_room = make_room
        self._timeout = timeout
        self._clock = clock
        # Guarded by the owner's lock:
        self._waiting: set[_Copy] = set()
        self._is_stopped = False

    def publish(
        self, lease: Lease, fate: Again | GiveUp, why: Failure | None, future: Future[Fate]
    ) -> None:
        """Publish the copy that a fate requires, and settle the job when it is confirmed."""
        copy = self._make(lease, fate, why, future)
        if isinstance(fate, GiveUp):
            self._owner.publish_failure(lease.job, fate.reason, why)
        if _is_too_long(copy.message):
            self._failed(copy, NotAJob("its headers leave no room for those of rabbitdelay"))
        else:
            self._send(copy)

    def stop(self) -> None:
        """Return the waiting jobs to the broker, and from now on those that would have to wait."""
        with self._owner.lock:
            self._is_stopped = True
            while self._waiting:
                self._owner.not_copied(self._waiting.pop().lease, Do.NACK)

    def _make(
        self, lease: Lease, fate: Again | GiveUp, why: Failure | None, future: Future[Fate]
    ) -> _Copy:
        now, job = self._publisher.monotonic(), lease.job
        delay_ms, message, known_until_ms = 0, lease.message, None
        if isinstance(fate, Again):
            delay_ms = fate.delay_ms
            dates = republish.dates(message, job.due_ms, lease.age_ms(now) + delay_ms)
            known_until_ms = dates.due_ms if dates.is_to_be_known else None
            message = republish.again(message, attempt=job.attempt + 1, dates=dates, failure=why)
        else:
            now_ms = int(self._clock() * 1000)
            message = republish.buried(message, reason=fate.reason, now_ms=now_ms, failure=why)
            if _is_too_long(message):
                message = republish.without_traceback(message)
        most = job.max_attempts or self._owner.max_attempts(job.topic)
        tries = Tries(now + delay_ms / 1000, most - job.attempt, now)
        return _Copy(lease, fate, why, message, known_until_ms, tries, future)

    def _send(self, copy: _Copy) -> None:
        now, job, fate = self._publisher.monotonic(), copy.lease.job, copy.fate
        deadline, resolve = now + self._timeout, partial(self._resolved, copy)
        if isinstance(fate, GiveUp):
            label = f"burial of {job.id} ({job.topic})"
            pending = Pending(copy.message, self._grave(job), now, deadline, resolve, label)
            self._publisher.submit_copy(pending)
            return
        delay_ms = copy.tries.rest_ms(now) if copy.tries.count else fate.delay_ms
        label, entry = f"retry of {job.id} ({job.topic})", LadderEntry(job.topic, delay_ms)
        pending = Pending(copy.message, entry, now, deadline, resolve, label)
        if copy.known_until_ms is not None:
            known = self._owner.keep_known(job, copy.known_until_ms)
            known.add_done_callback(partial(self._send_known, pending))
        else:
            self._publisher.submit_copy(pending)

    def _send_known(self, pending: Pending, known: Future[None]) -> None:
        """Publish a copy that is due late, once deletes of its id are kept until then."""
        error = known.exception()
        if isinstance(error, Exception):
            pending.resolve(error)
        else:
            self._publisher.submit_copy(pending)

    def _grave(self, job: Job) -> Target:
        buried, _ = self._topology.topic(job.topic)
        return Target(self._topology.buried_exchange, job.topic, buried)

    # Results, usually on the publisher's thread

    def _resolved(self, copy: _Copy, error: Exception | None) -> None:
        if error is not None:
            self._failed(copy, error)
            return
        self._owner.copied(copy.lease)
        if not copy.future.done():
            copy.future.set_result(copy.fate)

    def _failed(self, copy: _Copy, error: Exception) -> None:
        """Keep the job, bury it or return it, and fail the future."""
        if isinstance(copy.fate, GiveUp):
            self._settle(copy, Do.DEAD_LETTER, error)
        else:
            self._retry_failed(copy, error)
        if not copy.future.done():
            copy.future.set_exception(error)

    def _retry_failed(self, copy: _Copy, error: Exception) -> None:
        with self._owner.lock:
            now = self._publisher.monotonic()
            step = republish_retries.after_failure(copy.tries, error, now)
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

    def _keep(self, copy: _Copy, seconds: float, error: Exception) -> None:
        job = copy.lease.job
        logger.warning(
            "job %s (%s): retry not published, trying again in %.3g s (%s)",
            *(job.id, job.topic, seconds, error),
        )
        self._waiting.add(copy)
        self._later(seconds, partial(self._try_again, copy))
        if copy.tries.count == 1 and len(self._waiting) <= MAX_ROOM:
            self._make_room(copy.lease)

    def _try_again(self, copy: _Copy) -> None:
        with self._owner.lock:
            if copy not in self._waiting:
                return
            self._waiting.remove(copy)
            if copy.lease.leaving is None:
                return  # the connection was lost, and the broker redelivers the job
        death = self._owner.death(copy.lease)
        if death is None:
            self._send(copy)
        else:
            self._owner.drop_leaving(copy.lease, death, Future())

    def _bury(self, copy: _Copy, error: Exception) -> None:
        """Bury a job whose retry cannot be published."""
        lease, job = copy.lease, copy.lease.job
        reason = f"attempt {job.attempt} failed, and its retry could not be published: {error}"
        logger.error("job %s (%s): buried (%s)", job.id, job.topic, reason)
        fate = lease.fate = GiveUp(reason)
        self._owner.count(fate)
        self.publish(lease, fate, copy.why, Future())

    def _settle(self, copy: _Copy, do: Do, error: Exception) -> None:
        """Nack or dead-letter the original message, after a wait."""
        job = copy.lease.job
        event = "returned unchanged" if do is Do.NACK else "buried by the broker, without a reason"
        logger.warning("job %s (%s): %s (%s)", job.id, job.topic, event, error)
        wait = 0.0 if self._is_stopped else WAIT_SECONDS
        self._later(wait, partial(self._owner.not_copied, copy.lease, do))


def _is_too_long(message: Message) -> bool:
    return len(field_table.encode(message.headers)) > MAX_HEADERS_BYTES
