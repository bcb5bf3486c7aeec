"""The jobs of one worker: the prefetched ones and the running ones.

Jobs are received on the transport's thread, but a thread that has finished a job starts the next
one itself, which saves two thread switches per job. Therefore every method is one step under the
lock of the slots, which nothing else takes.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.jobs.states import Event
from rabbitdelay.core.work.handlers import Handler
from rabbitdelay.core.work.retry import Dropped, Fate, GiveUp
from rabbitdelay.core.work.scheduler import Scheduler
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.deletes.delete_check import DeleteCheck
from rabbitdelay.engine.dispatch.job_limit import JobLimit
from rabbitdelay.engine.dispatch.job_starter import JobStarter
from rabbitdelay.engine.dispatch.prefetched import Prefetched
from rabbitdelay.engine.dispatch.running_handlers import RunningHandlers
from rabbitdelay.engine.transport import Then, nothing
from rabbitdelay.engine.work.run import Executor, Run, log_fields, title

logger = logging.getLogger("rabbitdelay.worker")

NUDGE_SECONDS = 0.001
"""Time that a job waits for a thread that is likely to be free in a moment."""


class JobSlots:
    """Prefetched jobs and running handlers. Thread-safe."""

    def __init__(
        self,
        consumer: Consumer,
        check: DeleteCheck,
        handlers: Mapping[str, Handler],
        turns: Scheduler,
        *,
        executor: Executor,
        limit: JobLimit,
        when_idle: Then,
    ) -> None:
        self._consumer = consumer
        self._turns = turns
        self._executor = executor
        self._when_idle = when_idle
        """Called when the end of a handler was handled and no other is running."""
        self._lock = threading.RLock()
        self._prefetched = Prefetched(handlers)
        self._running = RunningHandlers(consumer, turns, executor)
        self._starter = JobStarter(
            consumer,
            check,
            handlers,
            turns,
            prefetched=self._prefetched,
            running=self._running,
            limit=limit,
            start_again=self.start,
        )
        self._may_start_here = not any(handler.auto_touch for handler in handlers.values())
        """Whether the thread that ends a run may start the next one. It may not with `auto_touch`,
        because timers are set on the transport's thread."""
        self._is_nudging = False
        self.is_stopping = False
        """Whether no more jobs are started."""

    @property
    def prefetched_count(self) -> int:
        """Number of prefetched jobs."""
        return self._prefetched.count

    @property
    def running_count(self) -> int:
        """Number of running handlers whose jobs have not been taken from them."""
        return self._turns.running

    # From the threads of handlers

    def end(self, run: Run, settle: Callable[[], None] = nothing) -> None:
        """End a run whose handler has returned; `settle` settles its job in the same step."""
        with self._lock:
            try:
                settle()
            finally:
                self._running.returned(run)
                if self._may_start_here and self._prefetched.suspects_since is None:
                    self._remove_ended()
                    self._start_all_that_may()
                self._consumer.wake()

    # On the transport's thread

    def add(self, lease: Lease) -> None:
        """Prefetch a job; `go_on` starts it."""
        with self._lock:
            self._prefetched.add(lease, self._consumer.monotonic())

    def is_known(self, lease: Lease) -> bool:
        """Whether this very attempt is running or was finished here, and so need not run again."""
        settlement = self._consumer.settlement

        def adopt(running: Lease, renew: bool) -> None:  # noqa: FBT001 - called by position
            settlement.adopt(running, lease, renew=renew)

        with self._lock:
            return settlement.acknowledge_again(lease) or self._running.adopt(lease, adopt)

    def hand_back(self, topics: Sequence[str]) -> None:
        """Return the prefetched jobs of paused topics to the broker."""
        with self._lock:
            for topic in topics:
                for lease in self._prefetched.take_of(topic):
                    self._consumer.settlement.hand_back(lease)

    def forget(self, topics: Sequence[str], lost: Sequence[Lease]) -> None:
        """Forget the prefetched jobs of topics whose channel was lost.

        Running handlers continue, because their jobs may be redelivered here. Each frees its slot
        at the end of the ttr, if that has not happened by then.
        """
        with self._lock:
            for topic in topics:
                self._prefetched.forget(topic)
            self._watch_lost(lost)

    def start(self) -> None:
        """Start the jobs that may start."""
        with self._lock:
            self._dispatch()

    def go_on(self) -> None:
        """Give the slots of the handlers that have returned to the next jobs."""
        with self._lock:
            self._remove_ended()
            self._dispatch()

    def expired(self, expired: Sequence[tuple[Lease, Fate]]) -> None:
        """Abandon handlers that exceeded their job's ttr and free their slots."""
        with self._lock:
            late = [(self._running.of_lease(lease), fate) for lease, fate in expired]
            self._abandon([run for run, _ in late if run is not None])
        for run, fate in late:
            if run is not None:
                _log_timeout(run.lease, fate)

    def start_no_more(self) -> None:
        """Start no more jobs, from when this returns. Any thread may call it."""
        with self._lock:
            self.is_stopping = True

    def hand_back_all(self) -> None:
        """Return all prefetched jobs to the broker."""
        with self._lock:
            for lease in self._prefetched.take_all():
                self._consumer.settlement.hand_back(lease)
            self._look_whether_idle()

    # Under the lock

    def _remove_ended(self) -> None:
        if self._running.remove_ended(self._consumer.monotonic()):
            self._look_whether_idle()

    def _look_whether_idle(self) -> None:
        if not self._turns.running:
            self._when_idle()

    def _dispatch(self) -> None:
        self._start_all_that_may()
        if self._executor.has_backlog and not self._is_nudging:
            self._is_nudging = True
            self._consumer.call_later(NUDGE_SECONDS, self._nudge)

    def _start_all_that_may(self) -> None:
        if not self.is_stopping:
            self._starter.start_all_that_may(self.end)

    def _nudge(self) -> None:
        self._is_nudging = False
        self._executor.nudge()

    def _abandon(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self._running.abandon(run, self._consumer.monotonic())
        self._dispatch()
        self._look_whether_idle()

    # Lost jobs, whose handlers are still running

    def _watch_lost(self, leases: Sequence[Lease]) -> None:
        """Make sure that a handler whose job was lost frees its slot at the end of the ttr."""
        for lease in leases:
            run = self._running.of_lease(lease)
            if run is not None and not run.is_watched and not run.handler.auto_touch:
                self._watch(run)

    def _watch(self, run: Run) -> None:
        run.is_watched = True
        rest = max(0.0, run.lease.deadline - self._consumer.monotonic())
        self._consumer.call_later(rest, partial(self._abandon_if_lost, run))

    def _abandon_if_lost(self, run: Run) -> None:
        run.is_watched = False
        with self._lock:
            is_running = self._running.of_lease(run.lease) is run
            if not is_running or run.lease.ended_by is not Event.LOSE:
                return
            if run.lease.deadline > self._consumer.monotonic():  # touched in the meantime
                self._watch(run)
                return
            self._abandon([run])
        _log_timeout_of_lost(run.lease)


def _log_timeout_of_lost(lease: Lease) -> None:
    logger.warning(
        "%s: timed out after %g s (its connection was lost before)",
        title(lease),
        lease.ttr_seconds,
        extra=log_fields(lease, "timed out"),
    )


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
