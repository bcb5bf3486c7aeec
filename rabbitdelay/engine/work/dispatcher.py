"""The dispatcher: from a delivery to a running handler, and from its end to the next job.

The dispatcher starts jobs in the order of core/work/scheduler.py. When a job's ttr expires, it
takes the job away from its handler, even if the handler is still running.

It runs on the transport's thread, except for `end`: a thread that has finished a job starts the
next one itself, which saves two thread switches per job. Therefore all prefetched and running jobs
are guarded by the dispatcher's lock.
"""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from rabbitdelay.core.amqp.decode import Delivery
from rabbitdelay.core.consume.leases import Identity, Lease
from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.core.jobs.states import Event
from rabbitdelay.core.work.handlers import Handler
from rabbitdelay.core.work.retry import Dropped, Fate, GiveUp
from rabbitdelay.core.work.scheduler import Scheduler, StartSuspect
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.consume.subscription import Subscription
from rabbitdelay.engine.deletes.delete_check import Liveness
from rabbitdelay.engine.deletes.reader import LogReader
from rabbitdelay.engine.flow import Bell
from rabbitdelay.engine.pop.popper import MAX_AT_ONCE
from rabbitdelay.engine.work.drain import Drain
from rabbitdelay.engine.work.prefetched import Prefetched
from rabbitdelay.engine.work.run import Executor, Run, log_fields, title
from rabbitdelay.errors import ConnectionFailed, LeaseLost, WorkerFailed
from rabbitdelay.models import DEFAULT_TTR_MS

logger = logging.getLogger("rabbitdelay.worker")

SUSPECT_WAIT_SECONDS = 0.05
"""Wait before a suspect starts, in which the broker receives the acks of earlier jobs."""
NUDGE_SECONDS = 0.001
"""Time that a job waits for a thread that is likely to be free in a moment."""


class Dispatcher:
    """The jobs of one worker: the prefetched ones and the running ones."""

    def __init__(
        self,
        consumer: Consumer,
        log_reader: LogReader,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int,
        prefetch: int | None,
        executor: Executor,
        max_jobs: int | None,
        until_empty: bool,
        told: Bell,
    ) -> None:
        limits = {topic: handler.concurrency for topic, handler in handlers.items()}
        self.is_done = False
        """Whether the worker has to stop, because it failed or has nothing more to do."""
        self._told = told
        self._lock = threading.RLock()
        self.consumer = consumer
        self.settlement = consumer.settlement
        self._log_reader = log_reader
        log_reader.watch(self._may_have_changed)
        self._handlers = handlers
        self._turns = Scheduler(concurrency, limits)
        self._prefetched = Prefetched(handlers)
        self._topics = [
            _Topic(
                self,
                handler,
                min(prefetch or limits[topic] or concurrency, max_jobs or MAX_AT_ONCE),
            )
            for topic, handler in handlers.items()
        ]
        self._executor = executor
        self._jobs_left = max_jobs
        self._drain: Drain | None = None
        if until_empty:
            self._drain = Drain(
                consumer, self._subscriptions, self._is_busy, when_empty=self._empty
            )
        self._stopping = False
        self._takes_more = True
        self._waits_for_log = False
        self._nudges = False
        self._dispatches_later = False
        self._ended_at = -math.inf
        self._running: dict[Lease, Run] = {}
        self._by_identity: dict[Identity, Run] = {}
        self._ended: deque[Run] = deque()
        self._may_start_here = not any(handler.auto_touch for handler in handlers.values())
        """Whether the thread that ends a run may start the next one. It may not with `auto_touch`,
        because timers are set on the transport's thread."""
        self.failure: Exception | None = None
        """The error that made the worker give up, or None."""
        self.is_idle = threading.Event()
        """Set when no handler is running after `stop`."""

    # From any thread

    @property
    def running(self) -> int:
        """Number of running handlers whose jobs have not been taken from them."""
        return self._turns.running

    def stop(self) -> None:
        """Take no more jobs, and return those that have not started."""
        self.consumer.call(self._stop)

    def end(self, run: Run, settle: Callable[[], None] = lambda: None) -> None:
        """End a run whose handler has returned; `settle` settles its job in the same step."""
        with self._lock:
            try:
                settle()
            finally:
                run.end()
                self._ended.append(run)
                if self._may_start_here and self._prefetched.suspects_since is None:
                    self._remove_ended()
                    self._start_all_that_may()
                self.consumer.wake()

    # Called by the consumer

    def connected(self) -> None:
        """Do nothing, because the topics are consumed once the log of deletes has been read."""

    def _may_have_changed(self) -> None:
        """Handle a change: the log of deletes was read or cut off, or a topic paused or resumed."""
        if self._log_reader.failure is not None:
            self.fail(self._log_reader.failure)
        self._consume_topics()
        with self._lock:
            self._dispatch()

    def _consume_topics(self) -> None:
        for topic in self._topics:
            if self._log_reader.is_paused(topic.name):
                self._pause(topic)
            elif self._log_reader.is_current and self._takes_more:
                topic.subscription.go_on()

    def _pause(self, topic: "_Topic") -> None:
        """Stop consuming a topic, and return its prefetched jobs."""
        topic.subscription.end()
        with self._lock:
            for lease in self._prefetched.take_of(topic.name):
                self.settlement.hand_back(lease)

    def disconnected(self, _error: ConnectionFailed, lost: Sequence[Lease]) -> None:
        """Forget the prefetched jobs.

        Running handlers continue, because their jobs may be redelivered here.
        """
        with self._lock:
            for topic in self._topics:
                topic.subscription.connection_lost()
                self._prefetched.forget(topic.name)
            self.watch_lost(lost)
        self._take_as_many_as_may_run()

    def channel_lost(self, number: int, error: Exception, lost: Sequence[Lease]) -> None:
        """Handle a closed channel: its queue was deleted, or a job was unacked for too long."""
        with self._lock:
            for topic in self._topics:
                if topic.subscription.channel_lost(number, error):
                    self._prefetched.forget(topic.name)
            self.watch_lost(lost)
        self._take_as_many_as_may_run()

    def closed(self) -> None:
        """End; without a preceding stop this is a failure."""
        if not self._stopping and self.failure is None:
            self.failure = WorkerFailed("the worker's I/O thread has ended: see its traceback")
        self._stopping = True
        self._done()
        self.is_idle.set()

    def topic_interrupted(self, topic: str, lost: Sequence[Lease]) -> None:
        """Handle the deletion of a topic's queue, which is declared again."""
        with self._lock:
            self._prefetched.forget(topic)
            self.watch_lost(lost)
        self._take_as_many_as_may_run()

    def fail(self, error: Exception) -> None:
        """Give up because of an error."""
        self.failure = error
        self._done()

    # Receiving

    def delivered(self, handler: Handler, delivery: Delivery) -> None:
        """Prefetch a job, unless its attempt is already running or finished here."""
        ttr_ms = DEFAULT_TTR_MS if handler.ttr_ms is None else handler.ttr_ms
        lease = self.consumer.jobs.read(delivery, handler.topic, ttr_ms)
        if lease is None or (delivery.redelivered and self._is_known(lease)):
            return
        if self._stopping or self._log_reader.is_paused(handler.topic):
            self.settlement.hand_back(lease)
            return
        with self._lock:
            self._prefetched.add(lease, self.consumer.monotonic())
        self._take_as_many_as_may_run()

    def _take_as_many_as_may_run(self) -> None:
        """Take jobs only while more may run than are prefetched, because of `max_jobs`.

        A prefetched job may be deleted or lost, and another one takes its place.
        """
        left = self._jobs_left
        if left is None or self._stopping:
            return
        is_enough = self._prefetched.count >= left
        if is_enough and self._takes_more:
            self._take_no_more()
        elif not is_enough and not self._takes_more:
            self._takes_more = True
            self._consume_topics()

    def _is_known(self, lease: Lease) -> bool:
        """Whether this very attempt is running or was finished here, and so need not run again."""
        with self._lock:
            if self.settlement.acknowledge_again(lease):
                return True
            run = self._by_identity.get(lease.identity)
            if run is None or not lease.job.token:
                return False
            renew = run.handler.auto_touch
            return run.go_on(partial(self.settlement.adopt, run.lease, lease, renew=renew))

    def read(self) -> None:
        """Hand out prefetched jobs to the slots that have become free."""
        self.heard()
        with self._lock:
            self._remove_ended()
            self._dispatch()
        self._take_as_many_as_may_run()

    def _remove_ended(self) -> None:
        if not self._ended:
            return
        now = self.consumer.monotonic()
        while self._ended:
            run = self._ended.popleft()
            lease = run.lease
            if not run.abandoned and lease.has_exceeded_ttr(now):
                continue  # `expired` is about to handle it
            self._ended_at = now
            self._running.pop(lease, None)
            if run.touch_timer is not None:
                self.consumer.cancel(run.touch_timer)
            if self._by_identity.get(lease.identity) is run:
                del self._by_identity[lease.identity]
            if not run.abandoned:
                self._turns.ended(lease.job.topic, now)
        self._look_whether_done()

    # Starting

    def _dispatch(self) -> None:
        self._start_all_that_may()
        if self._executor.has_backlog and not self._nudges:
            self._nudges = True
            self.consumer.call_later(NUDGE_SECONDS, self._nudge)

    def _nudge(self) -> None:
        self._nudges = False
        self._executor.nudge()

    def _start_all_that_may(self) -> None:
        if not self._prefetched.count:
            return
        now = self.consumer.monotonic()
        self._waits_for_log = not self._log_reader.is_current
        while not (self._stopping or self._waits_for_log) and self._jobs_left != 0:
            choice = self._turns.choose(self._prefetched, self._prefetched.suspects_since, now)
            if choice is None:
                return
            if isinstance(choice, StartSuspect):
                if now - self._ended_at < SUSPECT_WAIT_SECONDS:
                    self._dispatch_later()
                    return
                self._start_suspect(now)
            elif self._may_start(lease := self._prefetched.take(choice.topic), now):
                self._turns.started(choice.topic)
                self._start(lease)

    def _may_start(self, lease: Lease, now: float) -> bool:
        """Return whether a job may start, which reserves it; drop it if it was deleted."""
        liveness = self._log_reader.liveness(lease)
        if isinstance(liveness, Death):
            self.settlement.drop(lease, liveness)
            _log_dropped(lease)
        elif liveness is not Liveness.ALIVE:  # wait for `_may_have_changed`
            self._prefetched.put_back(lease, now)
            self._waits_for_log = True
        return liveness is Liveness.ALIVE and self.settlement.reserve(lease)

    def _dispatch_later(self) -> None:
        if not self._dispatches_later:
            self._dispatches_later = True
            self.consumer.call_later(SUSPECT_WAIT_SECONDS, self._dispatch_now)

    def _dispatch_now(self) -> None:
        self._dispatches_later = False
        with self._lock:
            self._dispatch()

    def _start_suspect(self, now: float) -> None:
        lease = self._prefetched.take_suspect(now)
        if self._may_start(lease, now):
            self._turns.alone(lease.job.topic, now)
            self._start(lease)

    def _start(self, lease: Lease) -> None:
        handler = self._handlers[lease.job.topic]
        run = Run(lease, handler)
        self._running[lease] = run
        self._by_identity[lease.identity] = run
        if self._jobs_left is not None:
            self._jobs_left -= 1
        if handler.auto_touch:
            self._touch_later(run)
        self._executor.start(run, self.end)

    def _touch_later(self, run: Run) -> None:
        half = run.lease.ttr_seconds / 2
        run.touch_timer = self.consumer.call_later(half, partial(self._touch, run))

    def _touch(self, run: Run) -> None:
        if self._running.get(run.lease) is not run:
            return
        with suppress(LeaseLost):  # the job may be redelivered, and is touched then
            self.settlement.touch(run.lease)
        self._touch_later(run)

    def expired(self, expired: Sequence[tuple[Lease, Fate]]) -> None:
        """Abandon handlers that exceeded their job's ttr and free their slots."""
        with self._lock:
            late = [(self._running.get(lease), lease, fate) for lease, fate in expired]
            for run, _, _ in late:
                if run is not None:
                    self._let_go(run)
            self._dispatch()
            self._look_whether_done()
        for run, lease, fate in late:
            if run is not None:
                _log_timeout(lease, fate)

    def watch_lost(self, leases: Sequence[Lease]) -> None:
        """Make sure that a handler whose job was lost frees its slot at the end of the ttr."""
        for lease in leases:
            run = self._running.get(lease)
            if run is not None and not run.is_watched and not run.handler.auto_touch:
                self._watch(run)

    def _watch(self, run: Run) -> None:
        run.is_watched = True
        rest = max(0.0, run.lease.deadline - self.consumer.monotonic())
        self.consumer.call_later(rest, partial(self._let_go_if_lost, run))

    def _let_go_if_lost(self, run: Run) -> None:
        run.is_watched = False
        with self._lock:
            if self._running.get(run.lease) is not run or run.lease.ended_by is not Event.LOSE:
                return
            if run.lease.deadline > self.consumer.monotonic():  # touched in the meantime
                self._watch(run)
                return
            self._let_go(run)
            self._dispatch()
            self._look_whether_done()
        logger.warning(
            "%s: timed out after %g s (its connection was lost before)",
            title(run.lease),
            run.lease.ttr_seconds,
            extra=log_fields(run.lease, "timed out"),
        )

    def _let_go(self, run: Run) -> None:
        """Abandon a handler that exceeded its job's ttr."""
        lease = run.lease
        del self._running[lease]
        if self._by_identity.get(lease.identity) is run:
            del self._by_identity[lease.identity]
        run.abandoned = True
        self._turns.ended(lease.job.topic, self.consumer.monotonic())
        self._executor.abandon(run)

    # Stopping

    def _stop(self) -> None:
        self._stopping = True
        self._take_no_more()
        with self._lock:
            for lease in self._prefetched.take_all():
                self.settlement.hand_back(lease)
            self._look_whether_done()

    def _done(self) -> None:
        """Notify the worker's thread, which waits for the end."""
        self.is_done = True
        self._told.ring()

    def _take_no_more(self) -> None:
        self._takes_more = False
        for topic in self._topics:
            topic.subscription.end()

    def _look_whether_done(self) -> None:
        if self._turns.running:
            return
        if self._stopping:
            self.is_idle.set()
        elif self._jobs_left == 0:
            self._done()

    # Running until the queues are empty

    def heard(self) -> None:
        """Note an event, so that the queues are not checked for a moment."""
        if self._drain is not None:
            self._drain.heard()

    def _subscriptions(self) -> list[Subscription]:
        """Return the subscriptions of topics that are not paused; paused ones count as empty."""
        is_paused = self._log_reader.is_paused
        return [topic.subscription for topic in self._topics if not is_paused(topic.name)]

    def _empty(self) -> None:
        for topic in self._topics:
            if self._log_reader.is_paused(topic.name):
                logger.warning("topic %s: paused, its jobs were not run", topic.name)
        self._done()

    def _is_busy(self) -> bool:
        if not self._log_reader.is_current:
            return True
        return bool(len(self.settlement.leases) or self._turns.running or self._stopping)


class _Topic:
    """One topic of a worker, and its subscription."""

    def __init__(self, dispatcher: Dispatcher, handler: Handler, prefetch: int) -> None:
        self.name = handler.topic
        self._dispatcher = dispatcher
        self._handler = handler
        consumer = dispatcher.consumer
        topology = consumer.topology
        parts = [*topology.topic(self.name)]
        if handler.keep_responses:
            parts.append(topology.responses(self.name))
        queue = topology.ready_queue(self.name)
        self.subscription = Subscription(consumer, queue, parts, prefetch, self)

    def delivered(self, delivery: Delivery) -> None:
        """Prefetch a job."""
        self._dispatcher.delivered(self._handler, delivery)

    def consuming(self) -> None:
        """Note the start of the consumer."""
        self._dispatcher.heard()

    def interrupted(self, lost: Sequence[Lease]) -> None:
        """Handle the deletion of the queue, which is declared again."""
        self._dispatcher.topic_interrupted(self.name, lost)

    def failed(self, error: Exception) -> None:
        """Fail the worker, because the topic never worked: the cause has to be fixed."""
        self._dispatcher.fail(error)


def _log_dropped(lease: Lease) -> None:
    logger.info("%s: deleted (not handed out)", title(lease), extra=log_fields(lease, "deleted"))


def _log_timeout(lease: Lease, fate: Fate) -> None:
    job, timed_out = title(lease), f"timed out after {lease.ttr_seconds:g} s"
    if isinstance(fate, Dropped):
        fields = log_fields(lease, "deleted")
        logger.info("%s: %s, not retried (%s)", job, timed_out, fate.reason, extra=fields)
    elif isinstance(fate, GiveUp):
        fields = log_fields(lease, "buried") | {"reason": fate.reason, "error_type": "Timeout"}
        logger.error("%s: %s, buried (%s)", job, timed_out, fate.reason, extra=fields)
    else:
        fields = log_fields(lease, "timed out") | {"retry_in_ms": fate.delay_ms}
        seconds = fate.delay_ms / 1000
        logger.warning("%s: %s, retry in %g s", job, timed_out, seconds, extra=fields)
