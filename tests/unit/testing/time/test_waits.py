"""A handler that waits, on the thread of the timeline's clock: no time passes beside its wait."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rabbitdelay.engine.background import in_background
from rabbitdelay.engine.flow import Awaited, Wait
from rabbitdelay.engine.futures import Future
from rabbitdelay.testing.time.pace import VirtualPace
from rabbitdelay.testing.time.places import Act, Place, ThreadPlace
from rabbitdelay.testing.time.timeline import Timeline
from rabbitdelay.testing.time.timers import Timer
from rabbitdelay.testing.time.waits import Waits
from tests.support.patience import patience

LONG_SECONDS = 3600.0


class WatchedPace(VirtualPace):
    """A clock that tells when the timeline has decided whether to move it."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.decided = threading.Event()

    def move_to(self, time: float) -> None:
        """Note that the clock moves."""
        super().move_to(time)
        self.decided.set()

    def real_seconds_until(self, due: float) -> float | None:
        """Note that the timeline has nothing to do and does not move the clock."""
        self.decided.set()
        return super().real_seconds_until(due)


class Stall:
    """Holds up a handler at one point until the timeline has decided about a request to advance."""

    def __init__(self, timeline: Timeline, pace: WatchedPace) -> None:
        self._timeline = timeline
        self._pace = pace
        self.advanced: Future[None] | None = None
        self.moved_to: float | None = None

    def __call__(self) -> None:
        """Request the clock to move, and note how far it does before the handler goes on."""
        if self.advanced is None:
            self._pace.decided.clear()
            self.advanced = self._timeline.advance(10.0)
            assert self._pace.decided.wait(patience(10))
            self.moved_to = self._timeline.time()


class StalledTimeline(Timeline):
    """A timeline on which a handler is held up before it sets a timer."""

    stall: Callable[[], None] | None = None

    def call_later(
        self, place: Place, seconds: float, act: Act, *, may_be_late: bool = False
    ) -> Timer:
        """Hold up the caller, and set the timer."""
        if self.stall is not None:
            self.stall()
        return super().call_later(place, seconds, act, may_be_late=may_be_late)


class FutureStalledAtFirst(Future[None]):
    """A future that holds up its waiter before it registers its callback."""

    stall: Callable[[], None]

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Hold up the caller, and register the callback."""
        self.stall()
        super().add_done_callback(fn)


class CallbacksStalledAtLast(list[Any]):
    """Callbacks of a future that hold up its waiter after it has taken back its own."""

    def __init__(self, stall: Callable[[], None]) -> None:
        super().__init__()
        self._stall = stall

    def remove(self, value: object) -> None:
        """Remove the callback, and hold up the caller."""
        super().remove(value)
        self._stall()


@pytest.fixture
def pace() -> WatchedPace:
    return WatchedPace()


@pytest.fixture
def timeline(pace: WatchedPace) -> Iterator[StalledTimeline]:
    timeline = StalledTimeline(pace)
    timeline.call_later(ThreadPlace(), LONG_SECONDS, lambda: None)  # so that `pace` is always asked
    yield timeline
    timeline.close()


@pytest.fixture
def stall(timeline: StalledTimeline, pace: WatchedPace) -> Stall:
    return Stall(timeline, pace)


def run_handler(timeline: Timeline, function: Callable[[], None]) -> None:
    """Run a function in a thread, as a handler, until it has returned."""

    def run() -> None:
        try:
            function()
        finally:
            timeline.end_handler(thread)

    thread = threading.Thread(target=run, daemon=True)
    timeline.begin_handler(thread, lambda: thread)
    thread.start()
    thread.join(patience(20))
    assert not thread.is_alive()


def test_the_clock_stands_still_until_the_end_of_a_wait_is_noticed(
    timeline: StalledTimeline, stall: Stall
) -> None:
    """The future is done before the waiter has registered its callback."""
    future = FutureStalledAtFirst()

    def end_it() -> None:
        stall()
        future.set_result(None)

    future.stall = end_it
    run_handler(timeline, lambda: Waits(timeline).wait(Wait(future)))
    assert stall.moved_to == 0.0
    assert stall.advanced is not None
    stall.advanced.result(patience(10))


def test_the_clock_stands_still_until_the_timer_of_a_wait_is_set(
    timeline: StalledTimeline, stall: Stall
) -> None:
    """A handler that sleeps for 5 s ends within the next 10 s."""
    ended_at = list[float]()
    timeline.stall = stall

    def sleep() -> None:
        with pytest.raises(TimeoutError):
            Waits(timeline).wait(Wait(Future(), 5.0))
        ended_at.append(timeline.time())

    run_handler(timeline, sleep)
    assert (stall.moved_to, ended_at) == (0.0, [5.0])


def test_the_clock_stands_still_after_a_wait_for_a_signal(
    timeline: StalledTimeline, stall: Stall
) -> None:
    """The waiter looks again at why it waits. What has ended its wait meanwhile is not lost."""
    future: Future[None] = Future()
    future._done_callbacks = CallbacksStalledAtLast(stall)  # type: ignore[attr-defined]

    def look() -> None:
        with pytest.raises(TimeoutError):
            Waits(timeline).wait(Wait(future, 0.001, awaited=Awaited.SIGNAL))

    run_handler(timeline, look)
    assert stall.moved_to == 0.0
    assert stall.advanced is not None
    stall.advanced.result(patience(10))


def test_the_clock_stands_still_during_work_of_the_machine(
    timeline: StalledTimeline, pace: WatchedPace, stall: Stall
) -> None:
    """The worker that waits for a thread has not ended before that thread has."""

    def wait_for_a_thread() -> None:
        Waits(timeline).wait(Wait(in_background(stall), awaited=Awaited.MACHINE))

    run_handler(timeline, wait_for_a_thread)
    assert stall.moved_to == 0.0
    assert stall.advanced is not None
    stall.advanced.result(patience(10))
    assert pace.time() == 10.0
