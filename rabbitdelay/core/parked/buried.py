"""Buried jobs: what the messages in a topic's buried queue say, and the way back.

Whatever is in there can be looked at, and kicked: a header that is missing or of the wrong type
is not told, and never an error.
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
    """A message in a buried queue, understood as far as it can be."""

    topic: str
    message: Message

    @property
    def id(self) -> str | None:
        """Its id, when it has one."""
        return self.message.message_id

    @property
    def attempt(self) -> int | None:
        """Which attempt was the last, by its header: the broker's redeliveries do not count."""
        return self._number("rd-attempt")

    @property
    def put_ms(self) -> int | None:
        """When it was put, in milliseconds since 1970."""
        return self._number("rd-put")

    @property
    def due_ms(self) -> int | None:
        """When it was due, in milliseconds since 1970."""
        return self._number("rd-due")

    @property
    def buried_ms(self) -> int | None:
        """When it was buried, in milliseconds since 1970; by the broker, in whole seconds."""
        buried_ms = self._number(BURIED)
        return _time_of_death(self.message.headers) if buried_ms is None else buried_ms

    @property
    def job(self) -> Job | None:
        """The job that it is, for asking whether it is deleted; None when it is no job.

        When it does not tell when it was put, it was before every delete; one without an id can
        only be purged with its topic.
        """
        try:
            return envelope.decode(self.message, topic=self.topic, now_ms=0, random_hex="")
        except NotAJob:
            return None

    @property
    def grave(self) -> Grave:
        """Why it was buried."""
        return read_grave(self.message.headers)

    @property
    def last_error(self) -> str | None:
        """The error of its last attempt, with its type, when there was one."""
        texts = [text for text in (self.grave.error_type, self.grave.error) if text]
        return ": ".join(texts) or None

    def _number(self, header: str) -> int | None:
        value = self.message.headers.get(header)
        return int(value) if isinstance(value, int) and value >= 0 else None


@dataclass(frozen=True, slots=True)
class Choice:
    """Which of them: all, or those with an id."""

    id: str | None = None

    def takes(self, buried: Buried) -> bool:
        """Whether it is one of them."""
        return self.id in (None, buried.id)


def way_back(topology: Topology, topic: str) -> Way:
    """Where a kicked job is published, and what must be there for it."""
    key = ladder.routing_key(ladder.NO_DELAY, topic)
    return Way(topology.ready_exchange, key, topology.topic(topic))


def _time_of_death(headers: Mapping[str, Any]) -> int | None:
    """When the broker dead-lettered it last, by its own record: the newest stands first."""
    deaths = headers.get("x-death")
    newest = deaths[0] if isinstance(deaths, list) and deaths else None
    time = newest.get("time") if isinstance(newest, Mapping) else None
    return int(time.timestamp() * 1000) if isinstance(time, datetime) else None
