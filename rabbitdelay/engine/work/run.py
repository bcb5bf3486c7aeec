"""A run: one handler running one job, and the interface of the executors that run handlers."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.jobs.states import Event
from rabbitdelay.core.work.handlers import Handler
from rabbitdelay.engine.flow import Flow
from rabbitdelay.engine.transport import Then, nothing


@dataclass(slots=True, eq=False)
class Run:
    """One handler running one job."""

    lease: Lease
    handler: Handler
    worker: object = None
    """The thread or task that it runs on."""
    hook_worker: object = None
    """The thread or task that calls the hooks after its ttr has expired."""
    abandoned: bool = False
    """Whether its job was taken from it; its slot is free."""
    touch_timer: object = None
    is_through: bool = False
    """Whether its handler has returned, or is not to be started any more."""
    is_watched: bool = False
    """Whether a timer is set for the end of the ttr of its job, which was lost."""
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    """Held while it is decided whether a lost job goes on here or has ended."""

    def end(self) -> None:
        """Note that the handler has returned."""
        with self._lock:
            self.is_through = True

    def end_if_over(self) -> bool:
        """End a run that has not started if its job was taken away; return whether it was."""
        with self._lock:
            self.is_through = self.is_through or self.lease.is_over
            return self.is_through

    def go_on(self, adopt: Callable[[], None]) -> bool:
        """Have a lost job adopted, if its handler would still settle it; return whether it was."""
        with self._lock:
            if self.is_through or self.lease.ended_by is not Event.LOSE:
                return False
            adopt()
            return True


class EndRun(Protocol):
    """Ends a run whose handler has returned; `settle` settles its job in the same step.

    The type of a function. It is a protocol because a Callable cannot have default arguments.
    """

    def __call__(self, run: Run, settle: Callable[[], None] = ...) -> None:
        """End a run. Thread-safe."""


class Executor(Protocol):
    """Runs handlers: as threads, as processes, or as tasks of an event loop. Thread-safe."""

    @property
    def lost(self) -> int:
        """Number of handlers that are still running after their job was taken from them."""

    def start(self, run: Run, end: EndRun) -> None:
        """Run the handler of a job."""

    def abandon(self, run: Run, told: Then = nothing) -> None:
        """Abandon a run whose job has reached the end of its ttr, and call the hooks, then `told`.

        Hooks that have not been called when the executor is closed are not called any more.
        """

    @property
    def has_backlog(self) -> bool:
        """Whether a job waits for a thread; `nudge` has to be called in a moment."""

    def nudge(self) -> None:
        """Start a thread for jobs that have waited for a moment."""

    def close(self) -> Flow[None]:
        """Release all resources."""


def log_fields(lease: Lease, event: str) -> dict[str, object]:
    """Return the structured fields of every log line about a job."""
    job = lease.job
    return {
        "event": event,
        "job_id": job.id,
        "topic": job.topic,
        "attempt": job.attempt,
        "lateness_ms": lease.lateness_ms,
    }


def title(lease: Lease) -> str:
    """Return the subject of every log line about a job."""
    return f"job {lease.job.id} ({lease.job.topic}), attempt {lease.job.attempt}"
