"""Holding: the jobs that a consumer holds, and what becomes of each of them.

Any thread may settle a job. What is given back goes as a copy through the publisher, and the
message that it came in is acked when the copy is confirmed: nothing is lost in between.
"""

import random
import threading
import time
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
from rabbitdelay.core.work.stats import Tally
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.settle.recently_finished import Remembered
from rabbitdelay.engine.settle.republisher import Copies, Outlet
from rabbitdelay.errors import LeaseLost, TimedOut
from rabbitdelay.models import Job

OnEnd = Callable[[], None]
MOST_REFUSED_LOGGED = 1_000
"""How many refused reply queues are logged: a putter may name any number of them."""


class Settler(Protocol):
    """Sends what settles a message. It is called with the lock held, and must not wait."""

    def settle(self, lease: Lease, do: Do) -> None:
        """Send it soon."""

    def schedule(self, at: float) -> None:
        """See to it that `expire` is called at this time."""

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run a function on the wire's thread after a while."""

    def make_room(self, lease: Lease) -> None:
        """Let the broker send other jobs in place of one that is held for a while."""


class Holding:
    """The leases of one consumer."""

    def __init__(
        self,
        topology: Topology,
        outlet: Outlet,
        settler: Settler,
        policy: Callable[[str], Policies],
        *,
        copy_timeout: float,
        reply_queues: ReplyQueues,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.lock = threading.RLock()
        """Held around every change of a lease and the frame that goes with it."""
        self.leases = Leases()
        self.tally = Tally(time.monotonic())
        self.finished_before = Remembered()
        self._topology = topology
        self._outlet = outlet
        self._settler = settler
        self._policy = policy
        self._copy_timeout = copy_timeout
        self._reply_queues = reply_queues
        self._refused_queues: set[str] = set()
        self.death: Callable[[Lease], Death | None] = lambda _: None
        """Why a job is dead, as far as the log of deletes is known here."""
        self.keep_known: Callable[[Job, int], Future[None]] | None = None
        """Lets an id be known until a copy of its job is due."""
        self._on_end: dict[Lease, list[OnEnd]] = {}
        self._copies = Copies(self, topology, outlet, settler, timeout=copy_timeout, clock=clock)

    # What the holder of a job may call, from any thread

    def reserve(self, lease: Lease) -> None:
        """Hand it out: its ttr begins."""
        with self.lock:
            self.leases.reserve(lease, time.monotonic())
            self._settler.schedule(lease.deadline)

    def finish(self, lease: Lease) -> None:
        """It is done: ack it."""
        now = time.monotonic()
        with self.lock:
            try:
                do = self.leases.finish(lease, now)
            except LeaseLost:
                self.tally.refused_late()
                raise
            self.finished_before.add(lease.identity)
            self._settler.settle(lease, do)
            self.tally.finished(lease.lateness_ms, now)
            if self._on_end:
                self._on_end.pop(lease, None)

    def finish_returned(self, lease: Lease) -> None:
        """Its handler has returned: ack it.

        When it was lost with its connection meanwhile, and its ttr has not passed, it is done all
        the same: should the broker hand it to this process again, it need not run again. Callers
        of `finish` cannot count on that: they are told that they lost it, and may undo their work.
        """
        with self.lock:
            if lease.ended_by is Event.LOSE and time.monotonic() < lease.deadline:
                self.finished_before.add(lease.identity)
            self.finish(lease)

    def touch(self, lease: Lease) -> float:
        """Let its ttr begin again; return the new deadline."""
        with self.lock:
            deadline = self.leases.touch(lease, time.monotonic())
            self._settler.schedule(deadline)
            return deadline

    def release(
        self, lease: Lease, delay_ms: int | None = None, why: Failure | None = None
    ) -> Future[Fate]:
        """Give it back, after a delay or its backoff; when its attempts are used up, bury it."""
        return self.give_back(lease, self.plan(lease, delay_ms), why)

    def bury(self, lease: Lease, reason: str, why: Failure | None = None) -> Future[Fate]:
        """Give it up."""
        return self.give_back(lease, GiveUp(reason), why)

    def publish(self, job: Job, message: Message, target: Target) -> Future[None]:
        """Publish a response to a job; it is confirmed when the future is done."""
        future: Future[None] = Future()

        def resolve(error: Exception | None) -> None:
            future.set_exception(error) if error is not None else future.set_result(None)

        now = time.monotonic()
        deadline = now + self._copy_timeout
        label = f"response to {job.id} ({job.topic})"
        self._outlet.submit_copy(Pending(message, target, label, now, deadline, resolve))
        return future

    def max_attempts(self, topic: str, error: BaseException | None = None) -> int:
        """Return the attempts of a topic's jobs that do not set their own."""
        return self._policy(topic).max_attempts(error)

    def plan(
        self, lease: Lease, delay_ms: int | None = None, error: BaseException | None = None
    ) -> Fate:
        """Return what follows if the attempt fails now; nothing is published."""
        return self._policy(lease.job.topic).after(
            lease.job,
            random=random.random(),  # noqa: S311 - jitter
            error=error,
            delay_ms=delay_ms,
        )

    def give_back(self, lease: Lease, fate: Fate, why: Failure | None = None) -> Future[Fate]:
        """Publish the copy that a fate asks for, and settle the job when it is confirmed."""
        event = Event.RELEASE if isinstance(fate, Again) else Event.BURY
        return self._leave(lease, event, fate, why)

    def fate_of(self, lease: Lease, planned: Fate) -> Fate | None:
        """Return what becomes of a failed job as far as is known; None when it was finished."""
        if lease.fate is None and lease.ended_by is Event.LOSE:
            return RETURNED
        if lease.is_over:
            return lease.fate
        death = self.death(lease)
        return planned if death is None else Dropped(death.value)

    def time_left(self, lease: Lease) -> float:
        """How many seconds it may still be held; 0 when it is not held any more."""
        return 0.0 if lease.is_over else max(0.0, lease.deadline - time.monotonic())

    def is_deleted(self, lease: Lease) -> bool:
        """Whether it was deleted while it is held."""
        return self.death(lease) is not None

    def on_end(self, lease: Lease, callback: OnEnd) -> None:
        """Call it when the job is taken away; at once when it is not held any more."""
        with self.lock:
            if not lease.is_over:
                self._on_end.setdefault(lease, []).append(callback)
                return
        callback()

    # What the consumer calls, on the wire's thread

    def expire(self) -> list[tuple[Lease, Fate]]:
        """Give back what has reached its deadline; return it, and what becomes of it."""
        with self.lock:
            expired = self.leases.expire(time.monotonic())
        return [(lease, self._time_out(lease)) for lease in expired]

    def next_expiry(self) -> float | None:
        """When to call `expire` next."""
        with self.lock:
            return self.leases.next_expiry()

    def bury_unread(self, lease: Lease, reason: str) -> None:
        """Bury what is not a job."""
        logger.warning("buried a message of topic %s: %s", lease.job.topic, reason)
        with self.lock:
            self.leases.take(lease)
            self.leases.unread(lease)
        # No delete is meant for it, and its id may be no text at all.
        self._publish_copy(lease, GiveUp(reason), None, Future())

    def lose(self, channel: int | None = None) -> list[Lease]:
        """The connection, or one channel of it, is gone, and with it these jobs."""
        with self.lock:
            lost = self.leases.lose(channel)
            self.tally.lost(sum(lease.was_reserved for lease in lost))
        return lost

    def tell_lost(self, leases: Iterable[Lease]) -> None:
        """Call whoever wanted to know. Without the lock: they may have locks of their own."""
        for lease in leases:
            self._tell(lease)

    def abandon(self) -> None:
        """In a forked child: these jobs are the parent's, and so is whoever had the lock."""
        self.lock = threading.RLock()
        self.leases.lose()
        self._on_end.clear()

    def is_any_leaving(self) -> bool:
        """Whether the copy of anything is on its way."""
        with self.lock:
            return self.leases.is_any_leaving()

    def is_finished(self, identity: Identity) -> bool:
        """Whether this attempt was finished here, and only its ack was lost."""
        return identity in self.finished_before

    def ack(self, lease: Lease) -> None:
        """It was finished here before, and only its ack was lost."""
        with self.lock:
            self.leases.forget(lease)
            self._settler.settle(lease, Do.ACK)

    def adopt(self, lease: Lease, again: Lease, *, renew: bool) -> None:
        """Go on with a job that was lost with its connection, and has come back."""
        deadline = time.monotonic() + lease.ttr_seconds if renew else None
        with self.lock:
            self.leases.forget(again)
            self.leases.adopt(lease, again, deadline)
            self._settler.schedule(lease.deadline)

    def drop(self, lease: Lease) -> None:
        """It is deleted, and was not handed out: ack it."""
        with self.lock:
            self._settler.settle(lease, self.leases.delete(lease))
            self.tally.deleted()
        death = self.death(lease) or Death.DELETED
        self.tell_asker(lease.job, death.value)

    def hand_back(self, lease: Lease) -> None:
        """Give it back as it is."""
        with self.lock:
            self._settler.settle(lease, self.leases.hand_back(lease))

    def hand_back_all(self) -> int:
        """Give back as it is whatever is still held; return how many."""
        self._copies.stop()
        with self.lock:
            held = [lease for lease in self.leases.held() if lease.leaving is None]
            for lease in held:
                self._settler.settle(lease, self.leases.hand_back(lease))
        for lease in held:
            self._tell(lease)
        return len(held)

    # Giving back

    def _time_out(self, lease: Lease) -> Fate:
        self.tally.timed_out()
        job = lease.job
        why = failure.timeout(job.ttr)
        fate = self.plan(lease, error=TimedOut(why.text))
        self._tell(lease)
        return self._publish(lease, fate, why, Future())

    def _leave(self, lease: Lease, event: Event, fate: Fate, why: Failure | None) -> Future[Fate]:
        with self.lock:
            try:
                self.leases.leave(lease, event, time.monotonic())
            except LeaseLost:
                self.tally.refused_late()
                raise
        self._on_end.pop(lease, None)
        future: Future[Fate] = Future()
        self._publish(lease, fate, why, future)
        return future

    def _publish(self, lease: Lease, fate: Fate, why: Failure | None, future: Future[Fate]) -> Fate:
        """Publish the copy of a job that is given back or buried, unless it was deleted."""
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
        self._copies.publish(lease, fate, why, future)
        return fate

    def drop_leaving(self, lease: Lease, death: Death, future: Future[Fate]) -> Fate:
        """It was deleted while it was held: nothing is given back."""
        fate = Dropped(death.value)
        with self.lock:
            if lease.leaving is not None:
                lease.leaving = Event.DELETE
            self._settler.settle(lease, self.leases.copied(lease))
            self.tally.deleted()
        self.tell_asker(lease.job, death.value)
        future.set_result(fate)
        return fate

    def tell_asker(self, job: Job, reason: str, why: Failure | None = None) -> None:
        """Tell who waits for the response to a job that there will be none."""
        for target in self.response_targets(job, keep=False):
            self.publish(job, responses.of_failure(job, reason, why), target)

    def response_targets(self, job: Job, *, keep: bool) -> list[Target]:
        """Return where the response to a job goes; log and count a queue that is not allowed."""
        if job.reply_to is not None and not self._reply_queues.allows(job.reply_to):
            self._refuse_reply(job, job.reply_to)
        return responses.targets(self._topology, self._reply_queues, job, keep=keep)

    # What the copies tell, on any thread

    def count(self, fate: Fate) -> None:
        """Count a job that is given back or buried."""
        with self.lock:
            if isinstance(fate, Again):
                self.tally.released()
            else:
                self.tally.buried()

    def copied(self, lease: Lease) -> None:
        """Acknowledge a job whose copy is confirmed."""
        with self.lock:
            self._settler.settle(lease, self.leases.copied(lease))

    def not_copied(self, lease: Lease, do: Do) -> None:
        """Settle a job whose copy cannot be published."""
        with self.lock:
            self._settler.settle(lease, self.leases.not_copied(lease, do))

    # Pieces

    def _refuse_reply(self, job: Job, queue: str) -> None:
        with self.lock:
            self.tally.refused_reply()
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
            except Exception:  # noqa: BLE001 - it comes from the caller's code
                logger.exception("what job %s called when it was lost failed", lease.job.id)
