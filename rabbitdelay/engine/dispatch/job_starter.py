"""Start prefetched jobs, in the order of core/work/scheduler.py."""

import logging
from collections.abc import Mapping
from enum import Enum, auto

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.core.work.handlers import Handler
from rabbitdelay.core.work.scheduler import Choice, Scheduler, Start
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.deletes.delete_check import DeleteCheck, Liveness
from rabbitdelay.engine.dispatch.job_limit import JobLimit
from rabbitdelay.engine.dispatch.prefetched import Prefetched
from rabbitdelay.engine.dispatch.running_handlers import RunningHandlers
from rabbitdelay.engine.transport import Then
from rabbitdelay.engine.work.run import EndRun, Run, log_fields, title

logger = logging.getLogger("rabbitdelay.worker")

SUSPECT_WAIT_SECONDS = 0.05
"""Wait before a suspect starts, in which the broker receives the acks of earlier jobs."""


class _Step(Enum):
    """Outcome of the attempt to start the next job."""

    STARTED = auto()
    GONE = auto()
    """It was deleted, or its lease was lost."""
    HAS_TO_WAIT = auto()
    """Whether it was deleted is unknown, or other jobs have to end first."""


class JobStarter:
    """Starts the jobs of one worker. Used only under the lock of its JobSlots."""

    def __init__(
        self,
        consumer: Consumer,
        check: DeleteCheck,
        handlers: Mapping[str, Handler],
        turns: Scheduler,
        *,
        prefetched: Prefetched,
        running: RunningHandlers,
        limit: JobLimit,
        start_again: Then,
    ) -> None:
        self._consumer = consumer
        self._check = check
        self._handlers = handlers
        self._turns = turns
        self._prefetched = prefetched
        self._running = running
        self._limit = limit
        self._start_again = start_again
        """Starts jobs under the lock, when a suspect has waited."""
        self._is_waiting = False
        """Whether a suspect waits for the acks of earlier jobs."""

    def start_all_that_may(self, end: EndRun) -> None:
        """Start jobs while there are free slots."""
        if not self._prefetched.count or not self._check.is_current:
            return
        now = self._consumer.monotonic()
        while not self._limit.is_reached:
            suspects_since = self._prefetched.suspects_since
            choice = self._turns.choose(self._prefetched, suspects_since, now)
            if choice is None or self._start(choice, now, end) is _Step.HAS_TO_WAIT:
                return

    def _start(self, choice: Choice, now: float, end: EndRun) -> _Step:
        if isinstance(choice, Start):
            lease = self._prefetched.take(choice.topic)
        elif now - self._running.ended_at < SUSPECT_WAIT_SECONDS:
            self._wait()
            return _Step.HAS_TO_WAIT
        else:
            lease = self._prefetched.take_suspect(now)
        step = self._reserve(lease, now)
        if step is _Step.STARTED:
            if isinstance(choice, Start):
                self._turns.started(choice.topic)
            else:
                self._turns.alone(lease.job.topic, now)
            self._limit.started()
            self._running.start(Run(lease, self._handlers[lease.job.topic]), end)
        return step

    def _reserve(self, lease: Lease, now: float) -> _Step:
        """Start the ttr of a job, unless it was deleted or that is unknown."""
        liveness = self._check.liveness(lease)
        if isinstance(liveness, Death):
            self._consumer.settlement.drop(lease, liveness)
            _log_dropped(lease)
            return _Step.GONE
        if liveness is not Liveness.ALIVE:  # the reader tells when that has changed
            self._prefetched.put_back(lease, now)
            return _Step.HAS_TO_WAIT
        return _Step.STARTED if self._consumer.settlement.reserve(lease) else _Step.GONE

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._consumer.call_later(SUSPECT_WAIT_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._is_waiting = False
        self._start_again()


def _log_dropped(lease: Lease) -> None:
    logger.info("%s: deleted (not handed out)", title(lease), extra=log_fields(lease, "deleted"))
