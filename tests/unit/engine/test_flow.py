"""Driving flows: both front ends send results, throw errors, and raise the flow's own errors."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from rabbitdelay import InvalidJob
from rabbitdelay.aio import awaiting as aio_driving
from rabbitdelay.engine.flow import Bell, Call, Flow, Sleep, Source, Wait, until
from rabbitdelay.engine.futures import Future
from rabbitdelay.executors import blocking
from tests.support.patience import patience

Drive = Callable[[Flow[Any]], Any]
DRIVES: dict[str, Drive] = {
    "threads": blocking.drive,
    "asyncio": lambda flow: asyncio.run(aio_driving.drive(flow)),
}


@pytest.fixture(params=DRIVES)
def drive(request: pytest.FixtureRequest) -> Drive:
    return DRIVES[request.param]


def done(value: object) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def test_a_flow_is_sent_the_results_that_it_waits_for(drive: Drive) -> None:
    def flow() -> Flow[list[int]]:
        first = yield Wait(done(1))
        second = yield Call(lambda: 2)
        yield Sleep(0)
        return [first, second]

    assert drive(flow()) == [1, 2]


def test_a_flow_is_thrown_errors_and_can_continue(drive: Drive) -> None:
    def flow() -> Flow[str]:
        with contextlib.suppress(TimeoutError):
            yield Wait(Future(), 0.01)
        try:
            yield Call(lambda: 1 // 0)
        except ZeroDivisionError:
            return "continued"
        return "no error was thrown"

    assert drive(flow()) == "continued"


def test_a_later_error_has_no_earlier_one_as_its_context(drive: Drive) -> None:
    """Otherwise the error of a first connection would be shown below an internal TimeoutError."""

    def flow() -> Flow[None]:
        with contextlib.suppress(TimeoutError):
            yield Wait(Future(), 0.01)
        raise LookupError("what matters")

    with pytest.raises(LookupError) as caught:
        drive(flow())
    assert caught.value.__context__ is None


def test_an_uncaught_error_is_raised_and_not_kept_alive(drive: Drive) -> None:
    class Mine(Exception):
        pass

    def fail() -> None:
        raise Mine

    def flow() -> Flow[None]:
        yield Call(fail)

    with pytest.raises(Mine) as caught:
        drive(flow())
    kept = weakref.ref(caught.value)
    del caught
    gc.collect()
    assert kept() is None


def test_until_waits_for_a_condition_or_the_deadline(drive: Drive) -> None:
    bell, is_true = Bell(), [False]

    def flow() -> Flow[tuple[bool, bool]]:
        before = yield from until(bell, lambda: is_true[0], deadline=0.0)
        is_true[0] = True
        bell.ring()
        return before, (yield from until(bell, lambda: is_true[0], deadline=None))

    assert drive(flow()) == (False, True)


def test_a_source_requires_an_iterable() -> None:
    with pytest.raises(InvalidJob, match="expected an iterable, not int"):
        Source(17)  # type: ignore[arg-type]


def test_a_future_of_the_loops_own_thread_does_not_wake_the_loop_through_its_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> object:
        loop, future = asyncio.get_running_loop(), Future[int]()
        monkeypatch.setattr(loop, "call_soon_threadsafe", None)
        loop.call_soon(future.set_result, 1)
        return await aio_driving.result_of(future, patience(10))

    assert asyncio.run(main()) == 1
