"""Buried jobs: reading the messages in a topic's buried queue, and the route of a kicked job.

Every message can be listed and kicked. A header that is missing or has the wrong type reads as
None, and is never an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rabbitdelay.core.jobs import envelope
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.parked.unrouted import Way
from rabbitdelay.core.settle.republish import BURIED, Grave, read_grave
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import NotAJob
from rabbitdelay.models import Job


@dataclass(frozen=True, slots=True)
class Buried:
    """A message in a buried queue, parsed as far as possible."""

    topic: str
    message: Message

    @property
    def id(self) -> str | None:
        """The job's id; None if the message has none."""
        return self.message.message_id

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
        """Time at which the job was due, in milliseconds since 1970."""
        return self._number("rd-due")

    @property
    def buried_ms(self) -> int | None:
        """Time of the burial, in milliseconds since 1970.

        Of whole seconds if the broker buried it.
        """
        buried_ms = self._number(BURIED)
        return _time_of_death(self.message.headers) if buried_ms is None else buried_ms

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
    def grave(self) -> Grave:
        """Why the job was buried."""
        return read_grave(self.message.headers)

    @property
    def last_error(self) -> str | None:
        """Type and text of the error of the last attempt; None if there was none."""
        texts = [text for text in (self.grave.error_type, self.grave.error) if text]
        return ": ".join(texts) or None

    def _number(self, header: str) -> int | None:
        value = self.message.headers.get(header)
        return int(value) if isinstance(value, int) and value >= 0 else None


@dataclass(frozen=True, slots=True)
class Choice:
    """Selects buried jobs: all of them, or those with an id."""

    id: str | None = None

    def takes(self, buried: Buried) -> bool:
        """Whether a job is selected."""
        return self.id in (None, buried.id)


def way_back(topology: Topology, topic: str) -> Way:
    """Return the route of a kicked job: straight to its ready queue."""
    key = ladder.routing_key(ladder.NO_DELAY, topic)
    return Way(topology.ready_exchange, key, topology.topic(topic))


def _time_of_death(headers: Mapping[str, Any]) -> int | None:
    """Return when the broker last dead-lettered the message. The newest record comes first."""
    deaths = headers.get("x-death")
    newest = deaths[0] if isinstance(deaths, list) and deaths else None
    time = newest.get("time") if isinstance(newest, Mapping) else None
    return int(time.timestamp() * 1000) if isinstance(time, datetime) else None
