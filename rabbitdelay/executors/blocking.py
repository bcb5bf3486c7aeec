"""Drive a flow on the calling thread, which blocks while the flow waits."""

import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from inspect import iscoroutine
from typing import Any, TypeVar

from rabbitdelay.engine.flow import Call, Flow, Sleep, Step, Wait
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.transport_source import Waiter
from rabbitdelay.errors import InvalidJob, RabbitDelayError

Result = TypeVar("Result")
Await = Callable[[Coroutine[Any, Any, Any]], Any]
"""Waits for a coroutine that runs on another thread's event loop."""


def refuse(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Close the coroutine and raise, because there is no event loop."""
    coroutine.close()
    raise RabbitDelayError(
        "coroutine functions as hooks need rabbitdelay.aio: use a plain function"
    )


def drive(flow: Flow[Result], waiter: Waiter | None = None, await_: Await = refuse) -> Result:
    """Run a flow to its end and return its value. The waiter waits, if there is one.

    An error that was thrown into the flow is not kept when the flow raises another one, because its
    traceback would keep this frame alive.
    """
    failure: BaseException | None = None
    try:
        step = next(flow)
        while True:
            try:
                value, failure = _perform(step, waiter, await_), None
            except BaseException as error:  # noqa: BLE001 - the flow decides
                value, failure = None, error
            step = flow.send(value) if failure is None else flow.throw(failure)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    finally:
        failure = None  # its traceback would keep this frame alive


def _perform(step: Step, waiter: Waiter | None, await_: Await) -> Any:  # noqa: ANN401 - any value
    if isinstance(step, Call):
        value = step.function()
        return await_(value) if iscoroutine(value) else value
    if isinstance(step, Wait):
        return step.future.result(step.seconds) if waiter is None else waiter.wait(step)
    if isinstance(step, Sleep):
        return _sleep(step.seconds, waiter)
    raise InvalidJob("asynchronous iterables need rabbitdelay.aio: pass a plain iterable")


def _sleep(seconds: float, waiter: Waiter | None) -> None:
    if waiter is None:
        time.sleep(seconds)
    elif seconds > 0:
        with suppress(TimeoutError):
            waiter.wait(Wait(Future(), seconds))
