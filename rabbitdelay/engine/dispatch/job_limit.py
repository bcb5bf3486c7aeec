"""The number of jobs that a worker still starts, because of `max_jobs`."""


class JobLimit:
    """Counts down with each job that is started. Without `max_jobs` there is no limit."""

    def __init__(self, max_jobs: int | None) -> None:
        self._left = max_jobs

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return self._left is not None

    @property
    def is_reached(self) -> bool:
        """Whether no further job is started."""
        return self._left == 0

    def is_met_by(self, prefetched: int) -> bool:
        """Whether the prefetched jobs are as many as are still started."""
        return self._left is not None and prefetched >= self._left

    def started(self) -> None:
        """Count a job that was started."""
        if self._left is not None:
            self._left -= 1
