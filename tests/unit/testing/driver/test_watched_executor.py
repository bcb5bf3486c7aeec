"""The clock stands still while hooks run, as long as they may still be called."""

from collections.abc import Iterator
from typing import Any

import pytest

from rabbitdelay.engine.transport import Then, nothing
from rabbitdelay.engine.work.run import Run
from rabbitdelay.executors.blocking import drive
from rabbitdelay.testing.driver.watched_executor import WatchedExecutor
from rabbitdelay.testing.time.pace import VirtualPace
from rabbitdelay.testing.time.timeline import Timeline
from tests.support.memory.manual_worker import ManualExecutor
from tests.support.patience import patience


class SlowHooks(ManualExecutor):
    """An executor whose hooks return when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.told: Then = nothing

    def abandon(self, run: Run, told: Then = nothing) -> None:  # noqa: ARG002 - not needed
        """Note how to end the hooks."""
        self.told = told


@pytest.fixture
def timeline() -> Iterator[Timeline]:
    timeline = Timeline(VirtualPace(0.0))
    yield timeline
    timeline.close()


@pytest.fixture
def executor() -> SlowHooks:
    return SlowHooks()


@pytest.fixture
def watched(timeline: Timeline, executor: SlowHooks) -> WatchedExecutor:
    nothing_known: Any = None
    watched = WatchedExecutor(timeline, executor, is_run_twice=lambda: False)
    watched.abandon(Run(nothing_known, nothing_known))
    return watched


@pytest.mark.usefixtures("watched")
def test_the_clock_moves_when_the_hooks_have_returned(
    timeline: Timeline, executor: SlowHooks
) -> None:
    advanced = timeline.advance(1.0)
    with pytest.raises(TimeoutError):
        advanced.result(0.05)
    executor.told()
    advanced.result(patience(10))


def test_the_clock_moves_when_the_hooks_are_not_called_any_more(
    timeline: Timeline, watched: WatchedExecutor
) -> None:
    """A pool of threads drops work that has not started when it is closed."""
    drive(watched.close())
    timeline.advance(1.0).result(patience(10))
