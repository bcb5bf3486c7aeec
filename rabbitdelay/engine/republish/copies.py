"""The copies that replace the messages of retried, released and buried jobs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rabbitdelay.core.amqp import field_table
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.publish.outbox import LadderEntry, Pending, Target
from rabbitdelay.core.settle import republish
from rabbitdelay.core.settle.failure import Failure
from rabbitdelay.core.settle.republish_retries import Tries
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.core.work.retry import Again, Fate, GiveUp
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.publish.publisher import Publisher
from rabbitdelay.engine.settle.fates import Fates
from rabbitdelay.models import Job
from rabbitdelay.system_time import TimeSource

MAX_HEADERS_BYTES = 126 * 1024
"""Maximum size of the headers. They have to fit into one frame, by default 128 KiB, or the broker
closes the connection. The other properties take at most 2 KiB."""

KeepKnown = Callable[[Job, int], Future[None]]
"""Keeps deletes of a job's id until a time in milliseconds, at which a copy of the job is due."""
Resolve = Callable[[Exception | None], None]


@dataclass(slots=True, eq=False)
class Copy:
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

    @property
    def is_too_long(self) -> bool:
        """Whether its headers do not fit into a frame."""
        return _is_too_long(self.message)


class CopyMaker:
    """Makes the copies that fates require."""

    def __init__(self, fates: Fates, clock: TimeSource, monotonic: TimeSource) -> None:
        self._fates = fates
        self._clock = clock
        self._monotonic = monotonic

    def make(
        self, lease: Lease, fate: Again | GiveUp, why: Failure | None, future: Future[Fate]
    ) -> Copy:
        """Return the copy of a leaving job."""
        now, job = self._monotonic(), lease.job
        delay_ms, message, known_until_ms = 0, lease.message, None
        if isinstance(fate, Again):
            delay_ms = fate.delay_ms
            is_next = not fate.is_same_attempt
            later_ms = lease.age_ms(now) + delay_ms if is_next else 0
            dates = republish.dates(message, job.due_ms, later_ms)
            known_until_ms = dates.due_ms if dates.is_to_be_known else None
            attempt = job.attempt + is_next
            message = republish.again(message, attempt=attempt, dates=dates, failure=why)
        else:
            message = self._buried(message, fate.reason, why)
        most = job.max_attempts or self._fates.max_attempts(job.topic)
        tries = Tries(now + delay_ms / 1000, most - job.attempt, now)
        return Copy(lease, fate, why, message, known_until_ms, tries, future)

    def _buried(self, message: Message, reason: str, why: Failure | None) -> Message:
        now_ms = int(self._clock() * 1000)
        message = republish.buried(message, reason=reason, now_ms=now_ms, failure=why)
        return republish.without_traceback(message) if _is_too_long(message) else message


class CopyPublisher:
    """Publishes copies. Thread-safe."""

    def __init__(
        self,
        publisher: Publisher,
        topology: Topology,
        keep_known: KeepKnown,
        *,
        timeout: float,
        monotonic: TimeSource,
    ) -> None:
        self._publisher = publisher
        self._topology = topology
        self._keep_known = keep_known
        self._timeout = timeout
        self._monotonic = monotonic

    def publish(self, copy: Copy, resolve: Resolve) -> None:
        """Publish a copy; call `resolve` with the error, or with None when it is confirmed."""
        now, job, fate = self._monotonic(), copy.lease.job, copy.fate
        deadline = now + self._timeout
        if isinstance(fate, GiveUp):
            label = f"burial of {job.id} ({job.topic})"
            pending = Pending(copy.message, self._grave(job), now, deadline, resolve, label)
            self._publisher.submit_copy(pending)
            return
        delay_ms = copy.tries.rest_ms(now) if copy.tries.count else fate.delay_ms
        label, entry = f"retry of {job.id} ({job.topic})", LadderEntry(job.topic, delay_ms)
        pending = Pending(copy.message, entry, now, deadline, resolve, label)
        if copy.known_until_ms is not None:
            known = self._keep_known(job, copy.known_until_ms)
            known.add_done_callback(partial(self._publish_known, pending))
        else:
            self._publisher.submit_copy(pending)

    def _publish_known(self, pending: Pending, known: Future[None]) -> None:
        """Publish a copy that is due late, once deletes of its id are kept until then."""
        error = known.exception()
        if isinstance(error, Exception):
            pending.resolve(error)
        else:
            self._publisher.submit_copy(pending)

    def _grave(self, job: Job) -> Target:
        buried, _ = self._topology.topic(job.topic)
        return Target(self._topology.buried_exchange, job.topic, buried)


def _is_too_long(message: Message) -> bool:
    return len(field_table.encode(message.headers)) > MAX_HEADERS_BYTES
