"""A run: one handler at work on one job."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rabbitdelay.core.handlers import Handler
from rabbitdelay.core.lease import Lease
from rabbitdelay.core.life import Event


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


class End(Protocol):
    """Tells that the handler of a run is through; `settle` settles its job in the same moment."""

    def __call__(self, run: Run, settle: Callable[[], None] = ...) -> None:
        """From any thread."""


Work = Callable[[Run, End], None]
"""Runs a handler and settles its job; on a thread of the pool."""
TimedOut = Callable[[Run, float], None]
"""Tells that the job of a run was taken away at its ttr; on a thread of the pool."""


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
