"""Workers whose handlers run until the test ends them, in both front ends.

Each start of a handler is recorded, and each job that is taken from its handler.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from rabbitdelay import Job, LeaseLost, Worker, aio
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.flow import Flow
from rabbitdelay.engine.settle.settlement import Settlement
from rabbitdelay.engine.transport import Then, nothing
from rabbitdelay.engine.work.run import EndRun, Executor, Run
from rabbitdelay.system_time import TimeSource


@dataclass(eq=False, slots=True)
class RecordedRun:
    """A handler that runs a job until the test ends it."""

    worker: int
    """The number of its worker."""
    began_at: float
    """The time on the clock of the broker, in seconds."""
    _run: Run
    _end: EndRun
    _settlement: Settlement
    taken_at: float | None = None
    """The time at which its job was taken from it."""

    @property
    def job(self) -> Job:
        """The job."""
        return self._run.lease.job

    def belongs_to(self, run: Run) -> bool:
        """Whether this is the record of a run."""
        return self._run is run

    def finish(self) -> bool:
        """Let the handler return; return whether the job was finished by that."""
        return self._settle(partial(self._settlement.finish_returned, self._run.lease))

    def fail(self) -> bool:
        """Let the handler raise; return whether the job was given back by that."""

        def release() -> None:
            self._settlement.release(self._run.lease)

        return self._settle(release)

    def _settle(self, settle: Callable[[], None]) -> bool:
        try:
            self._end(self._run, settle)
        except LeaseLost:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Taken:
    """A job was taken from its handler."""

    run: RecordedRun


class Record:
    """What happened to handlers, in order. Workers append, and the test takes."""

    def __init__(self, clock: TimeSource) -> None:
        self.clock = clock
        self._events = deque[RecordedRun | Taken]()
        self._runs: list[RecordedRun] = []

    def begun(self, run: RecordedRun) -> None:
        """Record the start of a handler."""
        self._runs.append(run)
        self._events.append(run)

    def taken(self, run: Run) -> None:
        """Record that a job was taken from its handler."""
        (found,) = (one for one in self._runs if one.belongs_to(run))
        found.taken_at = self.clock()
        self._events.append(Taken(found))

    def take(self) -> list[RecordedRun | Taken]:
        """Return what has happened since the last call."""
        return [self._events.popleft() for _ in range(len(self._events))]


class RecordingExecutor:
    """Starts handlers without running them. The interface is that of the engine's executors."""

    lost = 0
    has_backlog = False

    def __init__(self, worker: int, record: Record, settlement: Settlement) -> None:
        self._worker = worker
        self._record = record
        self._settlement = settlement

    def start(self, run: Run, end: EndRun) -> None:
        """Record the start of a handler."""
        now = self._record.clock()
        self._record.begun(RecordedRun(self._worker, now, run, end, self._settlement))

    def abandon(self, run: Run, told: Then = nothing) -> None:
        """Record that a job was taken from its handler."""
        self._record.taken(run)
        told()

    def nudge(self) -> None:
        """Do nothing, as no job waits for a thread."""

    def close(self) -> Flow[None]:
        """Do nothing."""
        yield from ()


class RecordedWorker(Worker):
    """A worker in threads."""

    def __init__(self, number: int, record: Record, **options: Any) -> None:  # noqa: ANN401
        super().__init__("amqp://nowhere.invalid", **options)
        self._recorded = number, record

    def _new_executor(self, consumer: Consumer) -> Flow[Executor]:
        yield from ()
        return RecordingExecutor(*self._recorded, consumer.settlement)


class RecordedAioWorker(aio.Worker):
    """A worker on an event loop."""

    def __init__(self, number: int, record: Record, **options: Any) -> None:  # noqa: ANN401
        super().__init__("amqp://nowhere.invalid", **options)
        self._recorded = number, record

    def _new_executor(self, consumer: Consumer) -> Flow[Executor]:
        yield from ()
        return RecordingExecutor(*self._recorded, consumer.settlement)
