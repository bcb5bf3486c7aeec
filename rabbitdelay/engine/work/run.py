"""A run: one handler at work on one job."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.jobs.states import Event
from rabbitdelay.core.work.handlers import Handler
from rabbitdelay.engine.flow import Flow


@dataclass(slots=True, eq=False)
class Run:
    """A handler at work on a job."""

    lease: Lease
    handler: Handler
    worker: object = None
    """The thread or the task that it runs on."""
    abandoned: bool = False
    """Whether its job was taken away: its slot is free, and it is not counted on."""
    touch_timer: object = None
    is_through: bool = False
    """Whether its handler has returned; under the holding's lock."""
    is_watched: bool = False
    """Whether it is looked at when its job, which was lost, has reached its deadline."""

    @property
    def may_go_on(self) -> bool:
        """Whether its job was lost, and its handler would still settle it."""
        return self.lease.ended_by is Event.LOSE and not self.is_through


class End(Protocol):
    """Tells that the handler of a run is through; `settle` settles its job in the same moment."""

    def __call__(self, run: Run, settle: Callable[[], None] = ...) -> None:
        """From any thread."""


class Executor(Protocol):
    """Who runs handlers: threads, or tasks on an event loop. From any thread."""

    @property
    def lost(self) -> int:
        """How many handlers are still at work on a job that was taken from them."""

    def start(self, run: Run, end: End) -> None:
        """Run the handler of a job that was handed out."""

    def let_go(self, run: Run) -> None:
        """Its job was taken away at its ttr: count on it no more, and tell the hooks."""

    @property
    def has_backlog(self) -> bool:
        """Whether something waits: then it is to be nudged in a moment."""

    def nudge(self) -> None:
        """What waits has waited for a moment."""

    def close(self) -> Flow[None]:
        """Let go of everything."""


def log_fields(lease: Lease, event: str) -> dict[str, object]:
    """What every log line about a job carries besides its text, for programs."""
    job = lease.job
    return {
        "event": event,
        "job_id": job.id,
        "topic": job.topic,
        "attempt": job.attempt,
        "lateness_ms": lease.lateness_ms,
    }


def title(lease: Lease) -> str:
    """What every log line about a job begins with, for people."""
    return f"job {lease.job.id} ({lease.job.topic}), attempt {lease.job.attempt}"
