"""Messages between a worker and its handler processes, each of which has its own pipe.

User objects (return values and exceptions) are pickled separately inside the message. If one cannot
be pickled or unpickled, the message still arrives and reports the failure.
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
    """Import path of a handler's function, valid in any process."""

    topic: str
    module: str
    qualname: str
    is_async: bool

    @classmethod
    def of(cls, handler: Handler) -> Self:
        """Return the name of a handler; raise InvalidConfiguration if it cannot be imported."""
        function = handler.function
        module = getattr(function, "__module__", None) or ""
        name = cls(handler.topic, module, getattr(function, "__qualname__", ""), handler.is_async)
        try:
            is_found = name.find() is function
        except (ImportError, AttributeError, ValueError):
            is_found = False
        if not is_found:
            raise InvalidConfiguration(
                f"the handler of topic {name.topic} cannot run in another process: {function!r} "
                "must be a function at the top level of a module, importable by its name"
            )
        return name

    def find(self) -> Function:
        """Import the function."""
        function: Function = attrgetter(self.qualname)(importlib.import_module(self.module))
        return function


# From the worker


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """Request to call the handler of a job."""

    job: Job
    headers: Mapping[str, Any]
    received_ms: int
    redeliveries: int
    default_max_attempts: int | None


@dataclass(frozen=True, slots=True)
class Reply:
    """Result of a handler's request."""

    seconds_left: float
    error: Exception | None = None
    is_deleted: bool = False


# From the handler process


@dataclass(frozen=True, slots=True)
class Ready:
    """Report that all handlers are imported, or that one of them cannot be."""

    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """Request of a handler: a method of JobSettlement, and its arguments after the lease."""

    verb: Literal[
        "finish",
        "touch",
        "release",
        "hand_back_unchanged",
        "bury",
        "time_left",
        "is_deleted",
    ]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class ReturnedValue:
    """Return value of the handler."""

    pickled: bytes

    @classmethod
    def of(cls, value: object) -> Self:
        """Pickle a value, or a placeholder that reports why it cannot be pickled."""
        try:
            return cls(pickle.dumps(value))
        except Exception as error:  # noqa: BLE001 - a value may fail in any way
            return cls(pickle.dumps(UnpicklableValue.of(value, error)))

    def value(self) -> Any:  # noqa: ANN401 - whatever it was
        """Unpickle the value."""
        try:
            return pickle.loads(self.pickled)  # noqa: S301 - from our own process
        except Exception as error:  # noqa: BLE001 - the same
            return UnpicklableValue(problem=f"the worker cannot unpickle the response: {error}")


@dataclass(frozen=True, slots=True)
class RaisedError:
    """Exception raised by the handler."""

    pickled: bytes | None
    stand_in: Exception
    """Exception with the same outcome for the job that can always be unpickled."""
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Pickle an exception as faithfully as possible."""
        return cls(_pickled(error), _stand_in(error), "".join(traceback.format_exception(error)))

    def error(self) -> BaseException:
        """Unpickle the exception, with a note of its original traceback."""
        error = self._read()
        error.add_note(f"in the handler process:\n{self.traceback}")
        return error

    def _read(self) -> BaseException:
        try:
            error = pickle.loads(self.pickled or b"")  # noqa: S301 - from our own process
        except Exception:  # noqa: BLE001 - an exception's own __init__ may fail in any way
            return self.stand_in
        return error if isinstance(error, BaseException) else self.stand_in


class UnpicklableValue(BaseModel):
    """A response that could not be pickled; serialising it to JSON raises the reason."""

    problem: str

    @classmethod
    def of(cls, value: object, error: Exception) -> Self:
        """Return the placeholder of a value that cannot be pickled."""
        return cls(problem=f"a {type(value).__name__} cannot be sent to the worker: {error}")

    @model_serializer
    def _refuse(self) -> str:
        raise ValueError(self.problem)


def _pickled(error: BaseException) -> bytes | None:
    try:
        return pickle.dumps(error)
    except Exception:  # noqa: BLE001 - its attributes may fail in any way
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
