"""What a worker and the processes of its handlers tell each other, over one pipe for each of them.

What is of the user's make, a return value or an exception, travels as bytes of its own: when it
cannot be written here or read there, the message still arrives, and says so.
"""

import importlib
import pickle
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from typing import Any, Literal, Self

from pydantic import BaseModel, model_serializer

from rabbitdelay.core.settle.failure import Failure
from rabbitdelay.core.work.handlers import Function, Handler
from rabbitdelay.errors import (
    Bury,
    HandlerRaised,
    InvalidConfiguration,
    NotAJob,
    Retry,
    type_name,
)
from rabbitdelay.models import Job


@dataclass(frozen=True, slots=True)
class HandlerName:
    """Where the function of a handler is found, in any process."""

    topic: str
    module: str
    qualname: str
    is_async: bool

    @classmethod
    def of(cls, handler: Handler) -> Self:
        """Return it, or InvalidConfiguration for a function that has none."""
        function = handler.function
        module = getattr(function, "__module__", None) or ""
        name = cls(handler.topic, module, getattr(function, "__qualname__", ""), handler.is_async)
        try:
            is_found = name.find() is function
        except (ImportError, AttributeError, ValueError):
            is_found = False
        if not is_found:
            raise InvalidConfiguration(
                f"the handler of topic {name.topic} cannot run in another process: it must be a "
                f"function at the top level of a module, found there by its name, not {function!r}"
            )
        return name

    def find(self) -> Function:
        """Import it."""
        function: Function = attrgetter(self.qualname)(importlib.import_module(self.module))
        return function


# From the worker


@dataclass(frozen=True, slots=True)
class Call:
    """A job for its handler."""

    job: Job
    headers: Mapping[str, Any]
    received_ms: int
    redeliveries: int
    default_max_attempts: int | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of what the handler asked for."""

    seconds_left: float
    error: Exception | None = None
    is_deleted: bool = False


# From the handlers' process


@dataclass(frozen=True, slots=True)
class Ready:
    """All handlers are imported, or one of them cannot be."""

    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """What the handler asks for its job: a method of its Holder, and what follows the lease."""

    verb: Literal["finish", "touch", "release", "bury", "time_left", "is_deleted"]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Returned:
    """The handler returned a value."""

    pickled: bytes

    @classmethod
    def of(cls, value: object) -> Self:
        """Write a value, or that it cannot be written."""
        try:
            return cls(pickle.dumps(value))
        except Exception as error:  # noqa: BLE001 - a value may fail in any way
            return cls(pickle.dumps(Unsendable.of(value, error)))

    def value(self) -> Any:  # noqa: ANN401 - whatever it was
        """Read the value."""
        try:
            return pickle.loads(self.pickled)  # noqa: S301 - of our own child
        except Exception as error:  # noqa: BLE001 - the same
            return Unsendable(problem=f"it cannot be read by the worker: {error}")


@dataclass(frozen=True, slots=True)
class Raised:
    """The handler raised an exception."""

    pickled: bytes | None
    stand_in: Exception
    """Means the same for the job, and can always be read."""
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Write an exception as well as can be."""
        return cls(_pickled(error), _stand_in(error), "".join(traceback.format_exception(error)))

    def error(self) -> BaseException:
        """Read the exception, with a note of where it was raised."""
        error = self._read()
        error.add_note(f"in the handler's process:\n{self.traceback}")
        return error

    def _read(self) -> BaseException:
        try:
            error = pickle.loads(self.pickled or b"")  # noqa: S301 - of our own child
        except Exception:  # noqa: BLE001 - an exception's own __init__ may fail in any way
            return self.stand_in
        return error if isinstance(error, BaseException) else self.stand_in


class Unsendable(BaseModel):
    """A response that did not leave the handler's process: whoever wants it as JSON is told why."""

    problem: str

    @classmethod
    def of(cls, value: object, error: Exception) -> Self:
        """Of a value that cannot be pickled."""
        return cls(problem=f"a {type(value).__name__} cannot leave its process: {error}")

    @model_serializer
    def _refuse(self) -> str:
        raise ValueError(self.problem)


def _pickled(error: BaseException) -> bytes | None:
    try:
        return pickle.dumps(error)
    except Exception:  # noqa: BLE001 - what it carries may fail in any way
        return None


def _stand_in(error: BaseException) -> Exception:
    failure = Failure.of(error)
    match error:
        case Bury():
            return Bury(failure.text)
        case NotAJob():
            return NotAJob(failure.text)
        case Retry(delay=delay):
            known = delay if isinstance(delay, (int, float, timedelta)) else None
            return Retry(failure.text, delay=known)
        case _:
            kinds = map(type_name, type(error).__mro__)
            return HandlerRaised(str(failure), kinds=tuple(kinds))
