"""The dispatcher of a worker: connects its topics, its slots and the log of deletes.

It runs on the transport's thread, except for what is said to be called from any thread.
"""

import logging
import threading
from collections.abc import Mapping, Sequence

from rabbitdelay.core.amqp.decode import Delivery
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.work.handlers import Handler
from rabbitdelay.core.work.retry import Fate
from rabbitdelay.core.work.scheduler import Scheduler
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.delete_log.reader import LogReader
from rabbitdelay.engine.dispatch.drain import Drain
from rabbitdelay.engine.dispatch.job_limit import JobLimit
from rabbitdelay.engine.dispatch.job_slots import JobSlots
from rabbitdelay.engine.dispatch.topic_consumers import TopicConsumers
from rabbitdelay.engine.flow import Bell
from rabbitdelay.engine.pop.popper import MAX_AT_ONCE
from rabbitdelay.engine.work.run import Executor
from rabbitdelay.errors import ConnectionFailed, WorkerFailed
from rabbitdelay.models import DEFAULT_TTR_MS

logger = logging.getLogger("rabbitdelay.worker")


class Dispatcher:
    """The jobs of one worker, from a delivery to the end of its handler."""

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
        self.consumer = consumer
        self.settlement = consumer.settlement
        self.log_reader = log_reader
        self._told = told
        self._limit = JobLimit(max_jobs)
        self._slots = JobSlots(
            consumer,
            log_reader.check,
            handlers,
            Scheduler(concurrency, limits),
            executor=executor,
            limit=self._limit,
            when_idle=self._no_handler_runs,
        )
        self._topics = TopicConsumers(
            consumer,
            handlers,
            lambda topic: min(prefetch or limits[topic] or concurrency, max_jobs or MAX_AT_ONCE),
            log_reader.known.is_paused,
            self,
        )
        self._drain: Drain | None = None
        if until_empty:
            self._drain = Drain(
                consumer, self._topics.active, self._is_busy, when_empty=self._empty
            )
        self.is_done = False
        """Whether the worker has to stop, because it failed or has nothing more to do."""
        self.failure: Exception | None = None
        """The error that made the worker give up, or None."""
        self.is_idle = threading.Event()
        """Set when no handler is running after `stop`."""
        log_reader.status.watch(self._may_have_changed)

    # From any thread

    @property
    def running(self) -> int:
        """Number of running handlers whose jobs have not been taken from them."""
        return self._slots.running_count

    def stop(self) -> None:
        """Start no more jobs, and return those that have not started."""
        self._slots.start_no_more()
        self.consumer.call(self._stop)

    def _no_handler_runs(self) -> None:
        if self._slots.is_stopping:
            self.is_idle.set()
        elif self._limit.is_reached:
            self._done()

    def _done(self) -> None:
        """Notify the worker's thread, which waits for the end."""
        self.is_done = True
        self._told.ring()

    # Called by the consumer

    def connected(self) -> None:
        """Do nothing, because the topics are consumed once the log of deletes has been read."""

    def disconnected(self, _error: ConnectionFailed, lost: Sequence[Lease]) -> None:
        """Forget the prefetched jobs.

        Running handlers continue, because their jobs may be redelivered here.
        """
        self._slots.forget(self._topics.connection_lost(), lost)
        self._take_as_many_as_may_run()

    def channel_lost(self, number: int, error: Exception, lost: Sequence[Lease]) -> None:
        """Handle a closed channel: its queue was deleted, or a job was unacked for too long."""
        self._slots.forget(self._topics.channel_lost(number, error), lost)
        self._take_as_many_as_may_run()

    def expired(self, expired: Sequence[tuple[Lease, Fate]]) -> None:
        """Abandon handlers that exceeded their job's ttr and free their slots."""
        self._slots.expired(expired)

    def read(self) -> None:
        """Hand out prefetched jobs to the slots that have become free."""
        self.heard()
        self._slots.go_on()
        self._take_as_many_as_may_run()

    def closed(self) -> None:
        """End; without a preceding stop this is a failure."""
        if not self._slots.is_stopping and self.failure is None:
            self.failure = WorkerFailed("the worker's I/O thread has ended: see its traceback")
        self._slots.start_no_more()
        self._done()
        self.is_idle.set()

    # Called by the topics

    def delivered(self, handler: Handler, delivery: Delivery) -> None:
        """Prefetch a job, unless its attempt is already running or finished here."""
        ttr_ms = DEFAULT_TTR_MS if handler.ttr_ms is None else handler.ttr_ms
        lease = self.consumer.jobs.read(delivery, handler.topic, ttr_ms)
        if lease is None or (delivery.redelivered and self._slots.is_known(lease)):
            return
        if self._slots.is_stopping or self.log_reader.known.is_paused(handler.topic):
            self.settlement.hand_back(lease)
            return
        self._slots.add(lease)
        self._take_as_many_as_may_run()

    def topic_interrupted(self, topic: str, lost: Sequence[Lease]) -> None:
        """Handle the deletion of a topic's queue, which is declared again."""
        self._slots.forget([topic], lost)
        self._take_as_many_as_may_run()

    def heard(self) -> None:
        """Note an event, so that the queues are not checked for a moment."""
        if self._drain is not None:
            self._drain.heard()

    def fail(self, error: Exception) -> None:
        """Give up because of an error."""
        self.failure = error
        self._done()

    # The log of deletes

    def _may_have_changed(self) -> None:
        """Handle a change: the log of deletes was read or cut off, or a topic paused or resumed."""
        if self.log_reader.status.failure is not None:
            self.fail(self.log_reader.status.failure)
        self._consume_topics()
        self._slots.start()

    def _consume_topics(self) -> None:
        self._slots.hand_back(self._topics.pause())
        if self.log_reader.is_current:
            self._topics.consume()

    def _take_as_many_as_may_run(self) -> None:
        """Take jobs only while more may run than are prefetched, because of `max_jobs`.

        A prefetched job may be deleted or lost, and another one takes its place.
        """
        if not self._limit.is_set or self._slots.is_stopping:
            return
        is_enough = self._limit.is_met_by(self._slots.prefetched_count)
        if is_enough and self._topics.takes_more:
            self._topics.take_no_more()
        elif not is_enough and not self._topics.takes_more:
            self._topics.take_more()
            self._consume_topics()

    # Stopping

    def _stop(self) -> None:
        self._topics.take_no_more()
        self._slots.hand_back_all()

    # Running until the queues are empty

    def _empty(self) -> None:
        for topic in self._topics.paused():
            logger.warning("topic %s: paused, its jobs were not run", topic)
        self._done()

    def _is_busy(self) -> bool:
        if not self.log_reader.is_current:
            return True
        leases, slots = self.settlement.leases, self._slots
        return bool(len(leases) or slots.running_count or slots.is_stopping)
