"""Buried jobs: reading the messages in a topic's buried queue.

Every message can be listed and kicked. A header that is missing or has the wrong type reads as
None, and is never an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rabbitdelay.core.amqp.field_table import Timestamp
from rabbitdelay.core.jobs import envelope
from rabbitdelay.core.parked.parked_job import ParkedJob, to_datetime
from rabbitdelay.core.settle.republish import BURIED, Grave, read_grave
from rabbitdelay.errors import NotAJob
from rabbitdelay.models import Job


@dataclass(frozen=True, slots=True, repr=False)
class BuriedJob(ParkedJob):
    """A job in the buried queue of its topic, parsed as far as possible."""

    topic: str

    def __repr__(self) -> str:
        return f"BuriedJob(topic={self.topic!r}, id={self.id!r}, reason={self.reason!r})"

    @property
    def buried_ms(self) -> int | None:
        """Time of the burial, in milliseconds since 1970.

        Its precision is one second if the broker buried the job.
        """
        buried_ms = self._number(BURIED)
        return _time_of_death(self.headers) if buried_ms is None else buried_ms

    @property
    def buried(self) -> datetime | None:
        """Time of the burial; None if it is unknown or beyond the range of datetime."""
        return to_datetime(self.buried_ms)

    @property
    def reason(self) -> str:
        """Why the job was buried."""
        return self._grave.reason

    @property
    def error(self) -> str | None:
        """Text of the error of the last attempt; None if there was none."""
        return self._grave.error

    @property
    def error_type(self) -> str | None:
        """Type of the error of the last attempt; None if there was none."""
        return self._grave.error_type

    @property
    def traceback(self) -> str | None:
        """Traceback of the error of the last attempt; None if there was none."""
        return self._grave.traceback

    @property
    def last_error(self) -> str | None:
        """Type and text of the error of the last attempt; None if there was none."""
        texts = [text for text in (self.error_type, self.error) if text]
        return ": ".join(texts) or None

    @property
    def job(self) -> Job | None:
        """The job, for checking whether it is deleted; None if the message is not a job.

        Without a put time the job counts as put before every delete. Without an id the job can only
        be purged together with its topic.
        """
        try:
            return envelope.decode(self.message, topic=self.topic, now_ms=0, random_hex="")
        except NotAJob:
            return None

    @property
    def _grave(self) -> Grave:
        return read_grave(self.headers)


def _time_of_death(headers: Mapping[str, Any]) -> int | None:
    """Return when the broker dead-lettered the message last; its newest record comes first."""
    deaths = headers.get("x-death")
    newest = deaths[0] if isinstance(deaths, list) and deaths else None
    time = newest.get("time") if isinstance(newest, Mapping) else None
    return time.seconds * 1000 if isinstance(time, Timestamp) else None
