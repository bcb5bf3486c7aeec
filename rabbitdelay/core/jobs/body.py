"""Decode a job's body into the type that its handler declares."""

from contextlib import suppress
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from rabbitdelay.errors import NotAJob
from rabbitdelay.models import BYTES, JSON, Job, media_type

Value = TypeVar("Value")


def read(job: Job, adapter: TypeAdapter[Value]) -> Value:
    """Return the validated body; raise NotAJob with the reason if it is invalid.

    A body without a content type, from another publisher, is read as JSON if the type requires it.
    """
    try:
        if media_type(job.content_type) != JSON:
            with suppress(*((ValidationError,) if job.content_type == BYTES else ())):
                return adapter.validate_python(plain(job))
        return adapter.validate_json(job.payload)
    except ValidationError as error:
        raise NotAJob(f"body: {_first(error)}") from None


def plain(job: Job) -> object:
    """Return the body decoded by its content type; raise NotAJob with the reason if that fails."""
    try:
        return job.body
    except (ValueError, RecursionError) as error:
        raise NotAJob(f"body is not {media_type(job.content_type)}: {error}") from None


def _first(error: ValidationError) -> str:
    """Return the first validation error and its location, without the body, which may be secret."""
    complaint = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, complaint["loc"]))
    what = _WITHOUT_INPUT.get(complaint["type"], complaint["msg"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{place}: {what}{more}" if place else f"{what}{more}"


_WITHOUT_INPUT = {"union_tag_invalid": "Input has none of the expected tags"}
"""Replacements for error messages that quote the body."""
