"""Drive a flow on the event loop, awaiting its steps."""

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from inspect import isawaitable
from typing import Any, TypeVar

from rabbitdelay.engine.flow import Call, Flow, Sleep, Step, Wait
from rabbitdelay.engine.futures import Future as NeverDone
from rabbitdelay.engine.futures import take_back
from rabbitdelay.engine.transport_source import Waiter

Result = TypeVar("Result")


def start(flow: Flow[Result], waiter: Waiter | None = None) -> asyncio.Task[Result]:
    """Run a flow up to its first step, then drive it in a task."""
    return asyncio.create_task(drive(flow, waiter, next(flow)))


async def drive(
    flow: Flow[Result], waiter: Waiter | None = None, step: Step | None = None
) -> Result:
    """Run a flow to its end. The waiter waits, if there is one.

    If the flow has already started, `step` is its pending step.

    If the flow raises another error in place of one thrown into it, the thrown error is released.
    """
    failure: BaseException | None = None
    try:
        step = next(flow) if step is None else step
        while True:
            try:
                value, failure = await _take(step, waiter), None
            except BaseException as error:  # noqa: BLE001 - the flow decides, also when cancelled
                value, failure = None, error
            step = flow.send(value) if failure is None else flow.throw(failure)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    finally:
        failure = None  # its traceback would keep this frame alive


async def _take(step: Step, waiter: Waiter | None) -> Any:  # noqa: ANN401 - the result of any step
    if isinstance(step, Wait):
        if waiter is None:
            return await result_of(step.future, step.seconds)
        return await waiter.wait_async(step)
    if isinstance(step, Call):
        value = step.function()
        return await value if isawaitable(value) else value
    if isinstance(step, Sleep):
        return await _sleep(step.seconds, waiter)
    return await anext(step.iterator)


async def _sleep(seconds: float, waiter: Waiter | None) -> None:
    if waiter is None or seconds <= 0:
        await asyncio.sleep(seconds)
    else:
        with suppress(TimeoutError):
            await waiter.wait_async(Wait(NeverDone(), seconds))


async def result_of(future: Future[Result], seconds: float | None = None) -> Result:
    """Return the result of a future, which another thread or this loop sets.

    asyncio.wrap_future is not used, because it cancels the future, which may have other waiters. On
    the loop's own thread, the event is set at once: call_soon_threadsafe would write to the pipe
    that wakes the loop, which costs three system calls.
    """
    if not future.done():
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        thread = threading.get_ident()

        def tell(_future: Future[Result]) -> None:
            if loop.is_closed():
                return
            if threading.get_ident() == thread:
                done.set()
            else:
                loop.call_soon_threadsafe(done.set)

        future.add_done_callback(tell)
        try:
            async with asyncio.timeout(seconds):
                await done.wait()
        except BaseException:
            take_back(future, tell)
            raise
    return future.result()
