"""Driving a flow on the event loop: it awaits."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from inspect import isawaitable
from typing import Any, TypeVar

from rabbitdelay.engine.flows import Call, Flow, Sleep, Step, Wait

Result = TypeVar("Result")


def start(flow: Flow[Result]) -> asyncio.Task[Result]:
    """Run a flow at once until it waits, and from there on in a task."""
    return asyncio.create_task(drive(flow, next(flow)))


async def drive(flow: Flow[Result], step: Step | None = None) -> Result:
    """Run a flow to its end, from the step that it waits for if it has begun."""
    try:
        step = next(flow) if step is None else step
        while True:
            try:
                value = await _take(step)
            except BaseException as error:  # noqa: BLE001 - the flow decides, also when cancelled
                step = flow.throw(error)
            else:
                step = flow.send(value)
    except StopIteration as stop:
        result: Result = stop.value
        return result


async def _take(step: Step) -> Any:  # noqa: ANN401 - whatever the flow asked for
    if isinstance(step, Wait):
        return await result_of(step.future, step.seconds)
    if isinstance(step, Call):
        value = step.function()
        return await value if isawaitable(value) else value
    if isinstance(step, Sleep):
        return await asyncio.sleep(step.seconds)
    return await anext(step.iterator)


async def result_of(future: Future[Result], seconds: float | None = None) -> Result:
    """Wait for what another thread, or this loop, will set.

    Not asyncio.wrap_future: that cancels the future itself, which others may wait for too.
    """
    if not future.done():
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        future.add_done_callback(lambda _: _set(loop, done.set))
        async with asyncio.timeout(seconds):
            await done.wait()
    return future.result()


def _set(loop: asyncio.AbstractEventLoop, set_done: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(set_done)
