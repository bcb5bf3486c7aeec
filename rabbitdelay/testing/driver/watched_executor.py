"""An executor that tells the timeline when handlers run."""

from collections.abc import Callable

from rabbitdelay.engine.flow import Flow
from rabbitdelay.engine.transport import Then, nothing
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
        self._runs: set[object] = set()
        self._hooks: set[object] = set()
        """One object for the hooks of each run whose ttr has expired."""

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

    def abandon(self, run: Run, told: Then = nothing) -> None:
        """Abandon a run whose job has reached the end of its ttr, and call the hooks, then `told`.

        Time stands still until the hooks have returned, but not until the handler has.
        """
        hooks = object()

        def ended() -> None:
            try:
                told()
            finally:
                self._end(hooks)

        self._hooks.add(hooks)
        self._timeline.begin_handler(hooks, lambda: run.hook_worker)
        self._end(run)
        self._executor.abandon(run, ended)
        self._executor.nudge()

    @property
    def has_backlog(self) -> bool:
        """Whether a job waits for a thread."""
        return self._executor.has_backlog

    def nudge(self) -> None:
        """Start a thread for jobs that have waited for a moment."""
        self._executor.nudge()

    def close(self) -> Flow[None]:
        """Release all resources. Hooks that have not been called by then are not called."""
        yield from self._executor.close()
        self._end(*self._hooks)

    def forget(self) -> None:
        """Stop waiting for handlers and hooks, so that time moves on even if one is stuck."""
        self._end(*self._runs, *self._hooks)

    def _end(self, *ended: object) -> None:
        for one in ended:
            self._runs.discard(one)
            self._hooks.discard(one)
            self._timeline.end_handler(one)
