"""An executor that tells the timeline when handlers run."""

from collections.abc import Callable

from rabbitdelay.engine.flow import Flow
from rabbitdelay.engine.transport import nothing
from rabbitdelay.engine.work.run import EndRun, Executor, Run
from rabbitdelay.testing.time.timeline import Timeline


class WatchedExecutor:
    """Wraps the executor of a worker. Time stands still while a handler runs."""

    def __init__(
        self, timeline: Timeline, executor: Executor, is_run_twice: Callable[[], bool]
    ) -> None:
        self._timeline = timeline
        self._executor = executor
        self._is_run_twice = is_run_twice
        self._runs: set[Run] = set()

    @property
    def lost(self) -> int:
        """Number of handlers that are still running after their job was taken from them."""
        return self._executor.lost

    def start(self, run: Run, end: EndRun) -> None:
        """Run the handler of a job. Other threads are woken at once, as no time passes."""
        is_first_of_two = self._is_run_twice()
        is_trailing = False

        def ended(run: Run, settle: Callable[[], None] = nothing) -> None:
            nonlocal is_first_of_two, is_trailing
            if is_first_of_two and settle is not nothing:  # its acknowledgement is lost
                is_first_of_two, is_trailing = False, True
                self._executor.start(run, ended)
                return
            if is_trailing and settle is nothing:  # the first run has not ended its slot
                is_trailing = False
                return
            try:
                end(run, settle)
            finally:
                self._end(run)

        self._runs.add(run)
        self._timeline.begin_handler(run, lambda: run.worker)
        self._executor.start(run, ended)
        self._executor.nudge()

    def abandon(self, run: Run) -> None:
        """Abandon a run whose job has reached the end of its ttr, and call the hooks."""
        self._end(run)
        self._executor.abandon(run)

    @property
    def has_backlog(self) -> bool:
        """Whether a job waits for a thread."""
        return self._executor.has_backlog

    def nudge(self) -> None:
        """Start a thread for jobs that have waited for a moment."""
        self._executor.nudge()

    def close(self) -> Flow[None]:
        """Release all resources."""
        return self._executor.close()

    def forget(self) -> None:
        """Stop waiting for handlers, so that time moves on even if one is stuck."""
        for run in tuple(self._runs):
            self._end(run)

    def _end(self, run: Run) -> None:
        self._runs.discard(run)
        self._timeline.end_handler(run)
