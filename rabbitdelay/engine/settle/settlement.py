"""Settle the jobs that a consumer has leased: finish, touch, release, bury, and expiry of the ttr.

Any thread may settle a job. A job that is given back is published as a copy, and its message is
acknowledged when the copy is confirmed, so no job is lost in between.
"""

import random
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from rabbitdelay.core.consume.leases import Do, Identity, Lease, Leases
from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.jobs.states import Event
from rabbitdelay.core.publish.outbox import Pending, Target
from rabbitdelay.core.settle import failure
from rabbitdelay.core.settle.failure import Failure
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.core.work import responses
from rabbitdelay.core.work.error_policies import Policies
from rabbitdelay.core.work.outcome import RETURNED
from rabbitdelay.core.work.reply_queues import ReplyQueues
from rabbitdelay.core.work.retry import Again, Dropped, Fate, GiveUp
from rabbitdelay.core.work.stats import StatsRecorder
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.publish.publisher import Publisher
from rabbitdelay.engine.settle.recently_finished import RecentlyFinished
from rabbitdelay.engine.settle.republisher import KeepKnown, Republisher
from rabbitdelay.engine.transport_source import Waiter
from rabbitdelay.errors import LeaseLost, TimedOut
from rabbitdelay.models import Job
from rabbitdelay.system_time import TimeSource

OnEnd = Callable[[], None]
MOST_REFUSED_LOGGED = 1_000
"""Maximum number of refused reply queues that are logged; jobs may name any number of them."""


class AckSender(Protocol):
    """Sends acks and nacks. It is called with the lock held and must not wait.

    The consumer implements it, and cannot be imported here, because it imports this file.
    """

    def settle(self, lease: Lease, do: Do) -> None:
        """Send an ack or nack soon."""

    def schedule(self, at: float) -> None:
        """Make sure that `expire` is called at this time."""

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Schedule a function on the transport's thread, after a delay."""

    def make_room(self, lease: Lease) -> None:
        """Prefetch another job in place of one that waits to be published."""


class Settlement:
    """The leases of one consumer."""

    def __init__(
        self,
        topology: Topology,
        publisher: Publisher,
        ack_sender: AckSender,
        policy: Callable[[str], Policies],
        *,
        copy_timeout: float,
        reply_queues: ReplyQueues,
        death: Callable[[Lease], Death | None],
        keep_known: KeepKnown,
        clock: TimeSource,
        monotonic: TimeSource,
        waiter: Waiter | None,
    ) -> None:
        self.waiter = waiter
        """Waits for futures, if the transport is not a driver's."""
        self.clock = clock
        self.monotonic = monotonic
        self.lock = threading.RLock()
        """Held while a lease changes and the frame that belongs to the change is buffered."""
        self.leases = Leases()
        self.stats = StatsRecorder(self.monotonic())
        self.recently_finished = RecentlyFinished()
        self._topology = topology
        self._publisher = publisher
        self._ack_sender = ack_sender
        self._policy = policy
        self._copy_timeout = copy_timeout
        self._reply_queues = reply_queues
        self._refused_queues: set[str] = set()
        self.death = death
        """Returns why a job is dead, as far as this client knows the log of deletes."""
        self.keep_known = keep_known
        """Keeps deletes of an id until a copy of its job is due."""
        self._on_end: dict[Lease, list[OnEnd]] = {}
        self._republisher = Republisher(
            self,
            topology,
            publisher,
            later=ack_sender.later,
            make_room=ack_sender.make_room,
            timeout=copy_timeout,
            clock=clock,
        )

    # Called by the job's handler or by the caller of pop, on any thread

    def reserve(self, lease: Lease) -> None:
        """Hand out a job; its ttr starts."""
        with self.lock:
            self.leases.reserve(lease, self.monotonic())
            self._ack_sender.schedule(lease.deadline)

    def finish(self, lease: Lease) -> None:
        """Acknowledge a job."""
        now = self.monotonic()
        with self.lock:
            try:
                do = self.leases.finish(lease, now)
            except LeaseLost:
                self.stats.refused_late()
                raise
            self.recently_finished.add(lease.identity)
            self._ack_sender.settle(lease, do)
            self.stats.finished(lease.lateness_ms, now)
            if self._on_end:
                self._on_end.pop(lease, None)

    def finish_returned(self, lease: Lease) -> None:
        """Acknowledge a job whose handler has returned.

        If the job was lost with its connection and its ttr has not expired, it counts as finished
        all the same: this process does not run it again if the broker redelivers it. Callers of
        `finish` cannot rely on that, because `LeaseLost` is raised and they may undo their work.
        """
        with self.lock:
            if lease.ended_by is Event.LOSE and self.monotonic() < lease.deadline:
                self.recently_finished.add(lease.identity)
            self.finish(lease)

    def touch(self, lease: Lease) -> float:
        """Restart a job's ttr; return the new deadline."""
        with self.lock:
            deadline = self.leases.touch(lease, self.monotonic())
            self._ack_sender.schedule(deadline)
            return deadline

    def release(
        self, lease: Lease, delay_ms: int | None = None, why: Failure | None = None
    ) -> Future[Fate]:
        """Retry a job after a delay or its backoff; bury it if no attempts are left."""
        return self.give_back(lease, self.plan(lease, delay_ms), why)

    def bury(self, lease: Lease, reason: str, why: Failure | None = None) -> Future[Fate]:
        """Bury a job."""
        return self.give_back(lease, GiveUp(reason), why)

    def publish(self, job: Job, message: Message, target: Target) -> Future[None]:
        """Publish a response to a job; the future is done when it is confirmed."""
        future: Future[None] = Future()

        def resolve(error: Exception | None) -> None:
            future.set_exception(error) if error is not None else future.set_result(None)

        now = self.monotonic()
        deadline = now + self._copy_timeout
        label = f"response to {job.id} ({job.topic})"
        self._publisher.submit_copy(Pending(message, target, now, deadline, resolve, label))
        return future

    def max_attempts(self, topic: str, error: BaseException | None = None) -> int:
        """Return the maximum attempts of a topic's jobs that do not set their own."""
        return self._policy(topic).max_attempts(error)

    def plan(
        self, lease: Lease, delay_ms: int | None = None, error: BaseException | None = None
    ) -> Fate:
        """Return the fate of a job if its attempt failed now, without publishing anything."""
        return self._policy(lease.job.topic).after(
            lease.job,
            random=random.random(),  # noqa: S311 - jitter
            error=error,
            delay_ms=delay_ms,
        )

    def give_back(self, lease: Lease, fate: Fate, why: Failure | None = None) -> Future[Fate]:
        """Publish the copy that a fate requires, and settle the job when it is confirmed."""
        event = Event.RELEASE if isinstance(fate, Again) else Event.BURY
        return self._leave(lease, event, fate, why)

    def fate_of(self, lease: Lease, planned: Fate) -> Fate | None:
        """Return the fate of a failed job as far as it is known; None if the job was finished."""
        if lease.fate is None and lease.ended_by is Event.LOSE:
            return RETURNED
        if lease.is_over:
            return lease.fate
        death = self.death(lease)
        return planned if death is None else Dropped(death.value)

    def time_left(self, lease: Lease) -> float:
        """Return the remaining ttr in seconds; 0 if the lease has ended."""
        return 0.0 if lease.is_over else max(0.0, lease.deadline - self.monotonic())

    def is_deleted(self, lease: Lease) -> bool:
        """Whether a job was deleted after it was handed out."""
        return self.death(lease) is not None

    def on_end(self, lease: Lease, callback: OnEnd) -> None:
        """Register a callback for the loss of a lease; call it at once if the lease has ended."""
        with self.lock:
            if not lease.is_over:
                self._on_end.setdefault(lease, []).append(callback)
                return
        callback()

    # Called by the consumer, on the transport's thread

    def expire(self) -> list[tuple[Lease, Fate]]:
        """Give back the jobs whose deadline has passed; return them with their fates."""
        with self.lock:
            expired = self.leases.expire(self.monotonic())
        return [(lease, self._time_out(lease)) for lease in expired]

    def next_expiry(self) -> float | None:
        """Return the time of the next call of `expire`."""
        with self.lock:
            return self.leases.next_expiry()

    def bury_unread(self, lease: Lease, reason: str) -> None:
        """Bury a message that is not a job."""
        logger.warning("topic %s: message buried (%s)", lease.job.topic, reason)
        with self.lock:
            self.leases.take(lease)
            self.leases.bury_unread(lease)
        # Deletes do not apply to it, and its id may not even be text.
        self._publish_copy(lease, GiveUp(reason), None, Future())

    def lose(self, channel: int | None = None) -> list[Lease]:
        """End the leases of a closed channel, or of the whole connection if None."""
        with self.lock:
            lost = self.leases.lose(channel)
            self.stats.lost(sum(lease.was_reserved for lease in lost))
        return lost

    def tell_lost(self, leases: Iterable[Lease]) -> None:
        """Call the callbacks of lost leases.

        Called without the lock, because callbacks may acquire locks of their own.
        """
        for lease in leases:
            self._tell(lease)

    def abandon(self) -> None:
        """Drop all leases in a forked child.

        The leases are the parent's, and one of its threads may have held the lock.
        """
        self.lock = threading.RLock()
        self.leases.lose()
        self._on_end.clear()

    def is_any_leaving(self) -> bool:
        """Whether the copy of any job is in flight."""
        with self.lock:
            return self.leases.is_any_leaving()

    def is_finished(self, identity: Identity) -> bool:
        """Whether this attempt was finished by this process, and only its ack was lost."""
        return identity in self.recently_finished

    def ack(self, lease: Lease) -> None:
        """Acknowledge a redelivery of an attempt that was finished, and whose ack was lost."""
        with self.lock:
            self.leases.forget(lease)
            self._ack_sender.settle(lease, Do.ACK)

    def adopt(self, lease: Lease, again: Lease, *, renew: bool) -> None:
        """Continue a lost lease with the job's redelivery."""
        deadline = self.monotonic() + lease.ttr_seconds if renew else None
        with self.lock:
            self.leases.forget(again)
            self.leases.adopt(lease, again, deadline)
            self._ack_sender.schedule(lease.deadline)

    def drop(self, lease: Lease, death: Death) -> None:
        """Acknowledge a deleted job that was not handed out."""
        with self.lock:
            self._ack_sender.settle(lease, self.leases.delete(lease))
            self.stats.deleted()
        self.publish_failure(lease.job, death.value)

    def hand_back(self, lease: Lease) -> None:
        """Return a job unchanged to the broker."""
        with self.lock:
            self._ack_sender.settle(lease, self.leases.hand_back(lease))

    def hand_back_all(self) -> int:
        """Return all leased jobs unchanged to the broker; return their number."""
        self._republisher.stop()
        with self.lock:
            leases = [lease for lease in self.leases.all() if lease.leaving is None]
            for lease in leases:
                self._ack_sender.settle(lease, self.leases.hand_back(lease))
        for lease in leases:
            self._tell(lease)
        return len(leases)

    # Copies

    def _time_out(self, lease: Lease) -> Fate:
        self.stats.timed_out()
        job = lease.job
        why = failure.timeout(job.ttr)
        fate = self.plan(lease, error=TimedOut(why.text))
        self._tell(lease)
        return self._publish(lease, fate, why, Future())

    def _leave(self, lease: Lease, event: Event, fate: Fate, why: Failure | None) -> Future[Fate]:
        with self.lock:
            try:
                self.leases.leave(lease, event, self.monotonic())
            except LeaseLost:
                self.stats.refused_late()
                raise
        self._on_end.pop(lease, None)
        future: Future[Fate] = Future()
        self._publish(lease, fate, why, future)
        return future

    def _publish(self, lease: Lease, fate: Fate, why: Failure | None, future: Future[Fate]) -> Fate:
        """Publish the copy of a job that is given back or buried, unless the job was deleted."""
        death = self.death(lease)
        lease.fate = fate if death is None else Dropped(death.value)
        if death is not None:
            return self.drop_leaving(lease, death, future)
        assert not isinstance(fate, Dropped)
        return self._publish_copy(lease, fate, why, future)

    def _publish_copy(
        self, lease: Lease, fate: Again | GiveUp, why: Failure | None, future: Future[Fate]
    ) -> Fate:
        self.count(fate)
        self._republisher.publish(lease, fate, why, future)
        return fate

    def drop_leaving(self, lease: Lease, death: Death, future: Future[Fate]) -> Fate:
        """Drop a job that was deleted while it was leased, instead of giving it back."""
        fate = Dropped(death.value)
        with self.lock:
            if lease.leaving is not None:
                lease.leaving = Event.DELETE
            self._ack_sender.settle(lease, self.leases.copied(lease))
            self.stats.deleted()
        self.publish_failure(lease.job, death.value)
        future.set_result(fate)
        return fate

    def publish_failure(self, job: Job, reason: str, why: Failure | None = None) -> None:
        """Publish a failure as the response to a job that will have no other."""
        for target in self.response_targets(job, keep=False):
            self.publish(job, responses.of_failure(job, reason, why), target)

    def response_targets(self, job: Job, *, keep: bool) -> list[Target]:
        """Return the targets of a job's response.

        Log and count a reply queue that is not allowed.
        """
        if job.reply_to is not None and not self._reply_queues.allows(job.reply_to):
            self._refuse_reply(job, job.reply_to)
        return responses.targets(self._topology, self._reply_queues, job, keep=keep)

    # Called by the republisher, on any thread

    def count(self, fate: Fate) -> None:
        """Count a job that is retried, released or buried."""
        with self.lock:
            if isinstance(fate, Again):
                self.stats.released()
            else:
                self.stats.buried()

    def copied(self, lease: Lease) -> None:
        """Acknowledge a job whose copy is confirmed."""
        with self.lock:
            self._ack_sender.settle(lease, self.leases.copied(lease))

    def not_copied(self, lease: Lease, do: Do) -> None:
        """Settle a job whose copy cannot be published."""
        with self.lock:
            self._ack_sender.settle(lease, self.leases.not_copied(lease, do))

    # Helpers

    def _refuse_reply(self, job: Job, queue: str) -> None:
        with self.lock:
            self.stats.refused_reply()
            is_known = queue in self._refused_queues
            if is_known or len(self._refused_queues) >= MOST_REFUSED_LOGGED:
                return
            self._refused_queues.add(queue)
        reason = (
            f"reply_to {queue!r} is not an allowed queue; allow it with allow_reply_to, "
            "or with --allow-reply-to on the command line"
        )
        fields = {"event": "response refused", "topic": job.topic, "reason": reason}
        logger.warning("topic %s: response refused (%s)", job.topic, reason, extra=fields)

    def _tell(self, lease: Lease) -> None:
        for callback in self._on_end.pop(lease, ()):
            try:
                callback()
            except Exception:  # noqa: BLE001 - raised by the caller's code
                text = "job %s (%s): on_lost callback failed"
                logger.exception(text, lease.job.id, lease.job.topic)
