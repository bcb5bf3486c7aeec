"""The fates of jobs whose attempt fails, by the retry policies of their topics."""

import random
from collections.abc import Callable

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.core.jobs.states import Event
from rabbitdelay.core.work.error_policies import Policies
from rabbitdelay.core.work.outcome import RETURNED
from rabbitdelay.core.work.retry import Dropped, Fate


class Fates:
    """Says what follows a failed attempt, without doing anything."""

    def __init__(
        self, policy: Callable[[str], Policies], death: Callable[[Lease], Death | None]
    ) -> None:
        self._policy = policy
        self.death = death
        """Returns why a job is dead, as far as this client knows the log of deletes."""

    def max_attempts(self, topic: str, error: BaseException | None = None) -> int:
        """Return the maximum attempts of a topic's jobs that do not set their own."""
        return self._policy(topic).max_attempts(error)

    def plan(
        self, lease: Lease, delay_ms: int | None = None, error: BaseException | None = None
    ) -> Fate:
        """Return the fate of a job if its attempt failed now."""
        return self._policy(lease.job.topic).after(
            lease.job,
            random=random.random(),  # noqa: S311 - jitter
            error=error,
            delay_ms=delay_ms,
        )

    def known(self, lease: Lease, planned: Fate) -> Fate | None:
        """Return the fate of a failed job as far as it is known; None if the job was finished."""
        if lease.fate is None and lease.ended_by in (Event.LOSE, Event.HAND_BACK):
            return RETURNED
        if lease.is_over:
            return lease.fate
        death = self.death(lease)
        return planned if death is None else Dropped(death.value)
