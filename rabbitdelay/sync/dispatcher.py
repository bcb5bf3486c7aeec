"""The dispatcher: from a delivery to a handler's thread, and from its end to the next job.

Everything here runs on the consumer's I/O thread, but for what is marked otherwise. It hands out
what has come in by the rules of core/turns.py, renews what is to be renewed, and takes away what
has passed its ttr, whatever the handlers do.
"""

import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from pika.channel import Channel

from rabbitdelay.core.deliveries import Delivery, GetEmpty
from rabbitdelay.core.handlers import Handler
from rabbitdelay.core.lease import Identity, Lease
from rabbitdelay.core.life import Event
from rabbitdelay.core.turns import StartSuspect, Turns, is_suspect
from rabbitdelay.errors import ConnectionFailed, LeaseLost, WorkerFailed
from rabbitdelay.models import DEFAULT_TTR_MS
from rabbitdelay.sync.connection import logger
from rabbitdelay.sync.consumer import Consumer
from rabbitdelay.sync.pool import Pool
from rabbitdelay.sync.popping import MAX_AT_ONCE

RETRY_SECONDS = 2.0
"""How long to wait before a topic that could not be consumed is tried again."""
SUSPECT_PAUSE_SECONDS = 0.05
"""How long to wait before a suspect begins, for the broker to have the acks of those before it."""
NUDGE_SECONDS = 0.001
"""How long a job waits for a thread that seems to be through in no time."""
EMPTY_SECONDS = 0.2
"""For how long nothing must come before the queues are asked whether they are empty."""


@dataclass(slots=True, eq=False)
class Run:
    """A handler at work on a job."""

    lease: Lease
    handler: Handler
    thread: threading.Thread | None = None
    abandoned: bool = False
    """Whether its job was taken away: its slot is free, and its thread is not counted on."""
    touch_timer: object = None
    is_through: bool = False
    """Whether its handler has returned; under the holding's lock."""
    is_watched: bool = False
    """Whether it is looked at when its job, which was lost, has reached its deadline."""

    @property
    def may_go_on(self) -> bool:
        """Whether its job was lost, and its handler would still settle it."""
        return self.lease.ended_by is Event.LOSE and not self.is_through


@dataclass(slots=True, eq=False)
class Subscription:
    """The consumer of one topic, on a channel of its own."""

    handler: Handler
    prefetch: int
    waiting: deque[Lease]
    channel: Channel | None = None
    tag: str | None = None
    is_opening: bool = False
    is_open: bool = False
    was_open: bool = False
    """Whether it was ever consumed: then what fails is tried again."""


class End(Protocol):
    """Tells that the handler of a run is through; `settle` settles its job in the same moment."""

    def __call__(self, run: Run, settle: Callable[[], None] = ...) -> None:
        """From any thread."""


Work = Callable[[Run, End], None]
"""Runs a handler and settles its job; on a thread of the pool."""


@dataclass(frozen=True, slots=True)
class _TopicsWithWork:
    """The topics that have a job waiting."""

    subscriptions: Mapping[str, Subscription]

    def __contains__(self, topic: object) -> bool:
        return isinstance(topic, str) and bool(self.subscriptions[topic].waiting)


class Dispatcher:
    """The jobs of one worker: those that wait, and those that run."""

    def __init__(
        self,
        consumer: Consumer,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int,
        prefetch: int | None,
        pool: Pool,
        work: Work,
        max_jobs: int | None,
        until_empty: bool,
    ) -> None:
        limits = {topic: handler.concurrency for topic, handler in handlers.items()}
        self._consumer = consumer
        self.holding = consumer.holding
        self._turns = Turns(concurrency, limits)
        self._subscriptions = {
            topic: Subscription(
                handler,
                min(prefetch or limits[topic] or concurrency, max_jobs or MAX_AT_ONCE),
                deque(),
            )
            for topic, handler in handlers.items()
        }
        self._waiting = _TopicsWithWork(self._subscriptions)
        self._suspects: list[Lease] = []
        self._suspects_since: float | None = None
        self._pool = pool
        self._work = work
        self._jobs_left = max_jobs
        self._until_empty = until_empty
        self._heard_at = 0.0
        self._is_listening = False
        self._stopping = False
        self._nudges = False
        self._dispatches_later = False
        self._ended_at = -math.inf
        self._running: dict[Lease, Run] = {}
        self._by_identity: dict[Identity, Run] = {}
        self._ended: deque[Run] = deque()  # under the holding's lock
        self.failure: Exception | None = None
        """What made the worker give up, if anything did."""
        self.is_done = threading.Event()
        """Whether there is nothing more to do: it failed, or did what it was to do."""
        self.is_idle = threading.Event()
        """Whether nothing runs; after `stop`."""

    # From any thread

    @property
    def running(self) -> int:
        """How many handlers are at work on a job that is theirs."""
        return self._turns.running

    def stop(self) -> None:
        """Take nothing more, and give back what was not begun."""
        self._consumer.call(self._stop)

    def end(self, run: Run, settle: Callable[[], None] = lambda: None) -> None:
        """The handler of a run is through; `settle` settles its job in the same moment."""
        with self.holding.lock:
            try:
                settle()
            finally:
                run.is_through = True
                self._ended.append(run)
                self._consumer.wake()

    # The connection comes and goes

    def connected(self) -> None:
        """Consume every topic."""
        for subscription in self._subscriptions.values():
            subscription.is_opening = False
            self._subscribe(subscription)

    def disconnected(self, _error: ConnectionFailed, lost: Sequence[Lease]) -> None:
        """What waits is not ours any more. What runs goes on: its job may come back to it."""
        for subscription in self._subscriptions.values():
            self._forget(subscription)
        self._watch_lost(lost)

    def channel_lost(self, number: int, error: Exception, lost: Sequence[Lease]) -> None:
        """A queue was deleted, or the broker's patience with an unacked job has ended."""
        logger.warning("the broker closed a channel: %s", error)
        for subscription in self._subscriptions.values():
            channel = subscription.channel
            if channel is not None and channel.channel_number == number:
                self._forget(subscription)
                self._try_again(subscription, error)
        self._watch_lost(lost)

    def closed(self) -> None:
        """Nothing more will come."""
        if not self._stopping and self.failure is None:
            self.failure = WorkerFailed("the worker's I/O thread has ended: see its traceback")
        self._stopping = True
        self.is_done.set()
        self.is_idle.set()

    # Consuming

    def _subscribe(self, subscription: Subscription) -> None:
        if self._stopping or subscription.is_opening or subscription.channel is not None:
            return
        subscription.is_opening = True
        handler, topology = subscription.handler, self._consumer.topology
        parts = [*topology.topic(handler.topic)]
        if handler.keep_responses:
            parts.append(topology.responses(handler.topic))
        self._consumer.make(parts, partial(self._made, subscription))

    def _made(self, subscription: Subscription, error: Exception | None) -> None:
        if error is None:
            opened = partial(self._opened, subscription)
            self._consumer.open_channel(opened, partial(self._inbound, subscription))
        else:
            subscription.is_opening = False
            self._try_again(subscription, error)

    def _try_again(self, subscription: Subscription, error: Exception) -> None:
        """Consume it later; what never worked is a mistake that somebody must mend."""
        if subscription.was_open:
            logger.warning("topic %s: %s", subscription.handler.topic, error)
            self._subscribe_later(subscription)
        else:
            self._fail(error)

    def _opened(self, subscription: Subscription, channel: Channel) -> None:
        subscription.channel = channel
        channel.add_on_cancel_callback(lambda _: self._queue_gone(subscription))
        channel.basic_qos(prefetch_count=subscription.prefetch)
        queue = self._consumer.topology.ready_queue(subscription.handler.topic)
        # pika is never told of a delivery: it is read before pika sees it.
        subscription.tag = channel.basic_consume(
            queue, lambda *_: None, callback=lambda _: self._consuming(subscription)
        )

    def _consuming(self, subscription: Subscription) -> None:
        subscription.is_open = subscription.was_open = True
        self._heard()
        if self._stopping:
            self._cancel(subscription)

    def _queue_gone(self, subscription: Subscription) -> None:
        topic = subscription.handler.topic
        logger.warning("the ready queue of topic %s was deleted: it is made again", topic)
        self._consumer.forget_made()
        if subscription.channel is not None and subscription.channel.is_open:
            subscription.channel.close()
        lost = self._consumer.lose_channel(subscription.channel)
        self._forget(subscription)
        self._subscribe_later(subscription)
        self._watch_lost(lost)

    def _subscribe_later(self, subscription: Subscription) -> None:
        self._consumer.call_later(RETRY_SECONDS, partial(self._subscribe, subscription))

    def _forget(self, subscription: Subscription) -> None:
        subscription.channel = subscription.tag = None
        subscription.is_open = subscription.is_opening = False
        subscription.waiting.clear()
        topic = subscription.handler.topic
        self._suspects = [lease for lease in self._suspects if lease.job.topic != topic]
        if not self._suspects:
            self._suspects_since = None

    # Taking in

    def _inbound(self, subscription: Subscription, found: Delivery | GetEmpty) -> None:
        if isinstance(found, GetEmpty):
            return
        handler = subscription.handler
        lease = self._consumer.read_job(found, handler.topic, handler.ttr_ms or DEFAULT_TTR_MS)
        if lease is None:
            return
        if found.redelivered and self._is_known(lease):
            return
        if self._stopping:
            self.holding.hand_back(lease)
            return
        if is_suspect(lease.redeliveries):
            self._suspects.append(lease)
            self._suspects_since = self._suspects_since or time.monotonic()
        else:
            subscription.waiting.append(lease)
        if self._jobs_left is not None and self._at_hand >= self._jobs_left:
            self._take_no_more()

    @property
    def _at_hand(self) -> int:
        """How many jobs have come in and have not begun."""
        return len(self._suspects) + sum(len(one.waiting) for one in self._subscriptions.values())

    def _is_known(self, lease: Lease) -> bool:
        """Whether this very attempt runs here, or was finished here: then it need not run again."""
        with self.holding.lock:
            if self.holding.is_finished(lease.identity):
                self.holding.ack(lease)
                return True
            run = self._by_identity.get(lease.identity)
            if run is None or not lease.job.token or not run.may_go_on:
                return False
            self.holding.adopt(run.lease, lease, renew=run.handler.auto_touch)
            return True

    def read(self) -> None:
        """Hand out what has come in, into the slots that have become free."""
        self._heard()
        self._drain()
        self._dispatch()

    def _drain(self) -> None:
        now = time.monotonic()
        with self.holding.lock:
            ended, self._ended = self._ended, deque()
        for run in ended:
            self._ended_at = now
            self._running.pop(run.lease, None)
            if run.touch_timer is not None:
                self._consumer.cancel(run.touch_timer)
            if self._by_identity.get(run.lease.identity) is run:
                del self._by_identity[run.lease.identity]
            if not run.abandoned:
                self._turns.ended(run.lease.job.topic, now)
        if ended:
            self._look_whether_done()

    # Handing out

    def _dispatch(self) -> None:
        self._start_all_that_may()
        if self._pool.has_backlog and not self._nudges:
            self._nudges = True
            self._consumer.call_later(NUDGE_SECONDS, self._nudge)

    def _nudge(self) -> None:
        self._nudges = False
        self._pool.nudge()

    def _start_all_that_may(self) -> None:
        now = time.monotonic()
        while not self._stopping and self._jobs_left != 0:
            choice = self._turns.choose(self._waiting, self._suspects_since, now)
            if choice is None:
                return
            if isinstance(choice, StartSuspect):
                if now - self._ended_at < SUSPECT_PAUSE_SECONDS:
                    self._dispatch_later()
                    return
                self._start_suspect(now)
            else:
                self._turns.started(choice.topic)
                self._start(self._subscriptions[choice.topic].waiting.popleft())

    def _dispatch_later(self) -> None:
        if not self._dispatches_later:
            self._dispatches_later = True
            self._consumer.call_later(SUSPECT_PAUSE_SECONDS, self._dispatch_now)

    def _dispatch_now(self) -> None:
        self._dispatches_later = False
        self._dispatch()

    def _start_suspect(self, now: float) -> None:
        lease = self._suspects.pop(random.randrange(len(self._suspects)))  # noqa: S311 - a draw
        self._suspects_since = now if self._suspects else None
        self._turns.alone(lease.job.topic, now)
        self._start(lease)

    def _start(self, lease: Lease) -> None:
        handler = self._subscriptions[lease.job.topic].handler
        run = Run(lease, handler)
        self.holding.reserve(lease)
        self._running[lease] = run
        self._by_identity[lease.identity] = run
        if self._jobs_left is not None:
            self._jobs_left -= 1
        if handler.auto_touch:
            self._touch_later(run)
        self._pool.submit(partial(self._work, run, self.end))

    def _touch_later(self, run: Run) -> None:
        half = run.lease.ttr_seconds / 2
        run.touch_timer = self._consumer.call_later(half, partial(self._touch, run))

    def _touch(self, run: Run) -> None:
        if self._running.get(run.lease) is not run:
            return
        with suppress(LeaseLost):  # it may come back, and is touched then
            self.holding.touch(run.lease)
        self._touch_later(run)

    def expired(self, leases: Sequence[Lease]) -> None:
        """Their handlers are too late: count on them no more."""
        for lease in leases:
            run = self._running.get(lease)
            if run is not None:
                self._let_go(run)
        self._dispatch()
        self._look_whether_done()

    def _watch_lost(self, leases: Sequence[Lease]) -> None:
        """See that a handler whose job was lost gives up its slot at the ttr all the same."""
        for lease in leases:
            run = self._running.get(lease)
            if run is not None and not run.is_watched and not run.handler.auto_touch:
                self._watch(run)

    def _watch(self, run: Run) -> None:
        run.is_watched = True
        rest = max(0.0, run.lease.deadline - time.monotonic())
        self._consumer.call_later(rest, partial(self._let_go_if_lost, run))

    def _let_go_if_lost(self, run: Run) -> None:
        run.is_watched = False
        if self._running.get(run.lease) is not run or run.lease.ended_by is not Event.LOSE:
            return
        if run.lease.deadline > time.monotonic():  # it was touched meanwhile
            self._watch(run)
            return
        self._let_go(run)
        self._dispatch()
        self._look_whether_done()

    def _let_go(self, run: Run) -> None:
        """Count on a handler no more that is too late."""
        lease = run.lease
        del self._running[lease]
        if self._by_identity.get(lease.identity) is run:
            del self._by_identity[lease.identity]
        run.abandoned = True
        with self.holding.lock:  # its thread may be at another job by now
            if run.thread is not None and not run.is_through:
                self._pool.let_go(run.thread)
        self._turns.ended(lease.job.topic, time.monotonic())
        logger.warning(
            "job %s (%s) was not done within its ttr of %g s, and is given back",
            lease.job.id,
            lease.job.topic,
            lease.ttr_seconds,
            extra=log_fields(lease),
        )

    # Ending

    def _stop(self) -> None:
        self._stopping = True
        self._take_no_more()
        for subscription in self._subscriptions.values():
            while subscription.waiting:
                self.holding.hand_back(subscription.waiting.popleft())
        while self._suspects:
            self.holding.hand_back(self._suspects.pop())
        self._look_whether_done()

    def _take_no_more(self) -> None:
        for subscription in self._subscriptions.values():
            self._cancel(subscription)

    def _cancel(self, subscription: Subscription) -> None:
        channel, tag = subscription.channel, subscription.tag
        if channel is not None and channel.is_open and tag is not None and subscription.is_open:
            subscription.is_open = False
            channel.basic_cancel(tag)

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self.is_done.set()

    def _look_whether_done(self) -> None:
        if self._turns.running:
            return
        if self._stopping:
            self.is_idle.set()
        elif self._jobs_left == 0:
            self.is_done.set()

    # Until there is nothing left

    def _heard(self) -> None:
        if self._until_empty:
            self._heard_at = time.monotonic()
            self._listen()

    def _listen(self) -> None:
        if not self._is_listening:
            self._is_listening = True
            self._consumer.call_later(EMPTY_SECONDS, self._look_whether_empty)

    def _look_whether_empty(self) -> None:
        self._is_listening = False
        if time.monotonic() - self._heard_at < EMPTY_SECONDS * 0.9:
            self._listen()
            return
        if len(self.holding.leases) or self._turns.running or self._stopping:
            return  # when that has ended, it is heard
        subscriptions = list(self._subscriptions.values())
        if all(subscription.is_open for subscription in subscriptions):
            self._ask_whether_empty(subscriptions)

    def _ask_whether_empty(self, rest: list[Subscription]) -> None:
        """Ask one queue after the other; whatever comes meanwhile begins it anew."""
        if self._turns.running or self._stopping:
            return
        if not rest:
            self.is_done.set()
            return
        subscription = rest.pop()
        queue = self._consumer.topology.ready_queue(subscription.handler.topic)

        def answered(frame: Any) -> None:  # noqa: ANN401 - pika's method frame
            if frame.method.message_count == 0:
                self._ask_whether_empty(rest)
            else:
                self._heard()

        if subscription.channel is not None and subscription.channel.is_open:
            subscription.channel.queue_declare(queue, passive=True, callback=answered)


def log_fields(lease: Lease) -> dict[str, object]:
    """What every log line about a job carries besides its text."""
    job = lease.job
    return {
        "job_id": job.id,
        "topic": job.topic,
        "attempt": job.attempt,
        "lateness_ms": lease.lateness_ms,
    }
