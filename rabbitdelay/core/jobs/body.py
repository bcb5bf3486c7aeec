"""Bodies: a job's bytes as the type that its handler asks for."""

from contextlib import suppress
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from rabbitdelay.errors import NotAJob
from rabbitdelay.models import BYTES, JSON, Job, media_type

Value = TypeVar("Value")


def read(job: Job, adapter: TypeAdapter[Value]) -> Value:
    """Return the body, validated, or raise NotAJob with the reason.

    What came without a content type, from somebody else, is JSON when the type needs that.
    """
    try:
        if media_type(job.content_type) != JSON:
            with suppress(*((ValidationError,) if job.content_type == BYTES else ())):
                return adapter.validate_python(plain(job))
        return adapter.validate_json(job.payload)
    except ValidationError as error:
        raise NotAJob(f"body: {_first(error)}") from None


def plain(job: Job) -> object:
    """Return the body as its content type says, or raise NotAJob with the reason."""
    try:
        return job.body
    except (ValueError, RecursionError) as error:
        raise NotAJob(f"body is not {media_type(job.content_type)}: {error}") from None


def _first(error: ValidationError) -> str:
    """The first complaint, and where; the body itself is not repeated, it may be secret."""
    complaint = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, complaint["loc"]))
    what = _WITHOUT_INPUT.get(complaint["type"], complaint["msg"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{place}: {what}{more}" if place else f"{what}{more}"


_WITHOUT_INPUT = {"union_tag_invalid": "Input has none of the expected tags"}
"""What is said instead of a complaint that cites the body."""
