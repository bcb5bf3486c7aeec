"""The jobs that this gateway holds for its clients, by lease."""

import secrets
from dataclasses import dataclass
from functools import partial

from rabbitdelay.aio import ReservedJob
from rabbitdelay.errors import LeaseLost


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A reserved job and the lease that names it."""

    job: ReservedJob
    lease: str


class HeldJobs:
    """Keeps each reserved job until it is settled or lost."""

    def __init__(self) -> None:
        self._jobs: dict[str, ReservedJob] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def hold(self, job: ReservedJob) -> HeldJob:
        """Keep a job; return it with its lease."""
        lease = secrets.token_urlsafe(18)
        self._jobs[lease] = job
        job.on_lost(partial(self.forget, lease))
        return HeldJob(job, lease)

    def job(self, lease: str) -> ReservedJob:
        """Return the job of a lease; raise LeaseLost if it is not held."""
        found = self._jobs.get(lease)
        if found is None:
            raise LeaseLost("no job is held with this lease: it was settled, or its ttr is over")
        return found

    def forget(self, lease: str) -> None:
        """Forget a job that is settled."""
        self._jobs.pop(lease, None)

    def with_id(self, id: str) -> list[str]:
        """Return the leases of the held jobs with an id."""
        return [lease for lease, job in self._jobs.items() if job.id == id]
