"""Driving a flow with this thread: it waits."""

import time
from collections.abc import Callable, Coroutine
from inspect import iscoroutine
from typing import Any, TypeVar

from rabbitdelay.engine.flow import Call, Flow, Sleep, Step, Wait
from rabbitdelay.errors import InvalidJob, RabbitDelayError

Result = TypeVar("Result")
Await = Callable[[Coroutine[Any, Any, Any]], Any]
"""Waits for a coroutine, on the event loop of somebody else."""


def refuse(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Say that there is no event loop here."""
    coroutine.close()
    raise RabbitDelayError("a hook that is a coroutine function needs rabbitdelay.aio")


def drive(flow: Flow[Result], await_: Await = refuse) -> Result:
    """Run a flow to its end, and return what it returns.

    What it raises instead of an error that it was thrown does not drag that one along.
    """
    failure: BaseException | None = None
    try:
        step = next(flow)
        while True:
            try:
                value, failure = _take(step, await_), None
            except BaseException as error:  # noqa: BLE001 - the flow decides
                value, failure = None, error
            step = flow.send(value) if failure is None else flow.throw(failure)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    finally:
        failure = None  # with its traceback it would keep this frame alive


def _take(step: Step, await_: Await) -> Any:  # noqa: ANN401 - whatever the flow asked for
    if isinstance(step, Call):
        value = step.function()
        return await_(value) if iscoroutine(value) else value
    if isinstance(step, Wait):
        return step.future.result(step.seconds)
    if isinstance(step, Sleep):
        time.sleep(step.seconds)
        return None
    raise InvalidJob("give an iterable, not an asynchronous one: that is for rabbitdelay.aio")
