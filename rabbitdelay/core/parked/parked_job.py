"""Parked jobs: jobs that wait for a person, and the choice among them.

A header that is missing or has the wrong type reads as None, and is never an error.
"""

from abc import ABC
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from rabbitdelay.core.amqp.field_table import Encoded
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.models import BYTES, read_body

_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True, repr=False)
class ParkedJob(ABC):
    """A message that waits for a person, parsed as far as possible."""

    message: Message
    """The message as received. Treat as immutable."""

    @property
    def id(self) -> str | None:
        """The job's id; None if the message has none."""
        return self.message.message_id

    @property
    def payload(self) -> bytes:
        """The encoded body."""
        return self.message.body

    @property
    def content_type(self) -> str:
        """The type of the body."""
        return self.message.content_type or BYTES

    @property
    def body(self) -> Any:  # noqa: ANN401 - whatever JSON holds
        """The body as it was given: parsed JSON, a str, or bytes.

        Raises:
            ValueError: The body is not what its content type says.
        """
        return read_body(self.payload, self.content_type)

    @property
    def headers(self) -> Mapping[str, Any]:
        """All headers of the message, including those of rabbitdelay and of the broker."""
        return self.message.headers

    @property
    def attempt(self) -> int | None:
        """Number of the last attempt, by its header; redeliveries by the broker do not count."""
        return self._number("rd-attempt")

    @property
    def put_ms(self) -> int | None:
        """Time of the put, in milliseconds since 1970."""
        return self._number("rd-put")

    @property
    def due_ms(self) -> int | None:
        """Due time by the clock of the client that put it, in milliseconds since 1970."""
        return self._number("rd-due")

    @property
    def put(self) -> datetime | None:
        """Time of the put; None if it is unknown or beyond the range of datetime."""
        return to_datetime(self.put_ms)

    @property
    def due(self) -> datetime | None:
        """Due time; None if it is unknown or beyond the range of datetime."""
        return to_datetime(self.due_ms)

    def _number(self, header: str) -> int | None:
        value = self.message.headers.get(header)
        return int(value) if isinstance(value, int) and value >= 0 else None


Found = TypeVar("Found", bound=ParkedJob)
Ids = str | Collection[str] | None
"""One id, several, or None for all."""


@dataclass(frozen=True, slots=True)
class Choice(Generic[Found]):
    """Selects parked jobs: all of them, those with certain ids, or those that pass a filter."""

    ids: Ids = None
    where: Callable[[Found], bool] | None = None

    def takes(self, found: Found) -> bool:
        """Whether a job is selected."""
        return self._has_id(found) and (self.where is None or self.where(found))

    def _has_id(self, found: Found) -> bool:
        if self.ids is None:
            return True
        return found.id == self.ids if isinstance(self.ids, str) else found.id in self.ids


@dataclass(frozen=True, slots=True)
class SentJobs:
    """Result of a kick or a retry."""

    sent: int
    """Number of jobs whose copies the broker has confirmed."""
    stayed: int
    """Number of jobs that stay, because they have no route or the broker refused their copy."""
    dropped_deleted: int = 0
    """Number of jobs that were dropped because they are deleted."""


def with_original_bytes(copy: Message, message: Message, original: Mapping[str, Any]) -> Message:
    """Return a copy of a message in which each header that was kept has the bytes it came with.

    `original` has the headers of the message as `field_table.split` returns them.
    """
    headers = {
        name: _bytes_of(name, value, message, original) for name, value in copy.headers.items()
    }
    return replace(copy, headers=headers)


def _bytes_of(
    name: str, value: object, message: Message, original: Mapping[str, Encoded]
) -> object:
    is_kept = name in original and message.headers.get(name) is value
    return original[name] if is_kept else value


def to_datetime(time_ms: int | None) -> datetime | None:
    """Return a time as a datetime; None if it is unknown or out of range."""
    try:
        return None if time_ms is None else _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None
