"""Handlers: user functions, and which argument each of their parameters receives.

A parameter that is annotated with Job, or named `job`, receives the job. The other parameter, if
there is one, receives the body: validated if it is annotated, otherwise as decoded.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

from rabbitdelay.core.jobs import body, validation
from rabbitdelay.core.work.error_policies import Policies
from rabbitdelay.errors import InvalidConfiguration, InvalidJob
from rabbitdelay.models import Job

Function = Callable[..., Any]
HookFunction = TypeVar("HookFunction", bound=Callable[..., Any])
_UNCHECKED = (Any, object, inspect.Parameter.empty)
_HOOK_ARGUMENTS = {
    1: "the job",
    2: "the job and what its handler returned",
    3: "the job, the exception and, optionally, the outcome",
}
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class ParameterBinding:
    """The parameters of a function that receive the body and the job."""

    body_name: str | None
    body_adapter: TypeAdapter[Any] | None
    """Validates the body; None if the body is passed as decoded."""
    job_name: str | None

    def arguments(self, job: Job) -> dict[str, Any]:
        """Return the arguments to call the function with; raise NotAJob if the body is invalid."""
        arguments: dict[str, Any] = {}
        if self.body_name is not None:
            adapter = self.body_adapter
            value = body.plain(job) if adapter is None else body.read(job, adapter)
            arguments[self.body_name] = value
        if self.job_name is not None:
            arguments[self.job_name] = job
        return arguments


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that handles the jobs of a topic, with its options."""

    topic: str
    function: Function
    binding: ParameterBinding
    policies: Policies
    ttr_ms: int | None
    """Time to run, in milliseconds, of jobs that do not set their own."""
    concurrency: int | None
    """Maximum number of jobs at the same time; None for as many as the worker can run."""
    auto_touch: bool
    """Whether the ttr is renewed while the function runs."""
    keep_responses: bool
    is_async: bool
    """Whether the function is a coroutine function."""


def make_handler(
    topic: str,
    function: Function,
    *,
    policies: Policies,
    ttr: float | timedelta | None = None,
    concurrency: int | None = None,
    auto_touch: bool = False,
    keep_responses: bool = False,
) -> Handler:
    """Return the handler of a topic; raise InvalidConfiguration if it is invalid."""
    try:
        name = validation.check_topic(topic)
        ttr_ms = None if ttr is None else validation.check_ttr_ms(ttr)
    except InvalidJob as error:
        raise InvalidConfiguration(str(error)) from None
    return Handler(
        name,
        function,
        bind(function),
        policies,
        ttr_ms,
        concurrency,
        auto_touch,
        keep_responses,
        is_async(function),
    )


def is_async(function: Function) -> bool:
    """Whether a function is a coroutine function, or an object whose `__call__` is one."""
    called = getattr(function, "__call__", None)  # noqa: B004 - not whether it can be called
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def check_hook(hook: HookFunction, count: int) -> HookFunction:
    """Return a hook that takes `count` arguments; raise InvalidConfiguration if it does not."""
    name = getattr(hook, "__qualname__", repr(hook))
    try:
        inspect.signature(hook).bind(*range(count))
    except (TypeError, ValueError):
        takes = _HOOK_ARGUMENTS[count]
        raise InvalidConfiguration(f"hook {name} must take {takes}") from None
    return hook


def error_hook(hook: Function) -> Function:
    """Return an on_error hook in the form that takes the job, the error and the outcome.

    A hook with two parameters is called without the outcome. A third parameter that has a default
    receives the outcome only if it is named `outcome`.
    """
    try:
        signature = inspect.signature(hook)
        signature.bind(1, 2)
    except ValueError:  # a builtin without a signature
        return check_hook(hook, 2)
    except TypeError:
        return check_hook(hook, 3)
    if list(signature.parameters)[2:3] == ["outcome"]:
        return hook
    return lambda job, error, _outcome: hook(job, error)


def bind(function: Function) -> ParameterBinding:
    """Return the binding of a function's parameters."""
    name = getattr(function, "__qualname__", repr(function))
    parameters = _parameters(function, name)
    hints = _hints(function, name)
    jobs = [one.name for one in parameters if _is_job(one.name, hints.get(one.name))]
    bodies = [one.name for one in parameters if one.name not in jobs]
    if len(jobs) > 1 or len(bodies) > 1:
        raise InvalidConfiguration(
            f"handler {name} must take the body, the job or both, not "
            f"({', '.join(one.name for one in parameters)}): annotate the job with Job"
        )
    body_name = bodies[0] if bodies else None
    adapter = _adapter(hints.get(body_name), name) if body_name else None
    return ParameterBinding(body_name, adapter, jobs[0] if jobs else None)


def _parameters(function: Function, name: str) -> list[inspect.Parameter]:
    """Return the parameters without a default; the others keep their default."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise InvalidConfiguration(f"handler {name} cannot be called with a job") from None
    found = [one for one in signature.parameters.values() if one.kind not in _VARIABLE]
    if signature.parameters and not found:
        raise InvalidConfiguration(
            f"handler {name} must name its parameters: a decorator around it needs functools.wraps"
        )
    if any(one.kind is inspect.Parameter.POSITIONAL_ONLY for one in found):
        raise InvalidConfiguration(f"handler {name} must not have positional-only parameters")
    return [one for one in found if one.default is inspect.Parameter.empty]


def _hints(function: Function, name: str) -> dict[str, Any]:
    while isinstance(function, partial):
        function = function.func
    hinted = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004 - its hints
    try:
        return get_type_hints(hinted, include_extras=True)  # pydantic reads them
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise InvalidConfiguration(f"handler {name} has an unknown annotation: {error}") from None


def _is_job(name: str, hint: object) -> bool:
    if hint is None:
        return name == "job"
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return isinstance(kind, type) and issubclass(kind, Job)


def _adapter(hint: Any, name: str) -> TypeAdapter[Any] | None:  # noqa: ANN401 - any annotation
    if hint is None or hint in _UNCHECKED:
        return None
    try:
        return TypeAdapter(hint)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise InvalidConfiguration(
            f"handler {name}: pydantic cannot validate a body as {hint}: {error}"
        ) from None
