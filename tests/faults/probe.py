"""The fault suite's own client, whose jobs meet a fault at a chosen moment."""

from dataclasses import dataclass
from typing import Any

from rabbitdelay import Client, Job
from rabbitdelay.errors import RabbitDelayError
from tests.faults.history import HistoryWriter, Kind


@dataclass
class Probe:
    """Puts and deletes through connections that network faults do not affect."""

    client: Client
    history: HistoryWriter
    _count: int = 0

    def put(self, topic: str, body: dict[str, Any], *, delay: float = 0.0) -> list[Job]:
        """Put one job; return it, or nothing if the outcome is unknown."""
        self._count += 1
        name = f"probe-{topic}-{self._count}"
        self.history.write(Kind.PUT, name, delay=delay)
        try:
            job = self.client.put(topic, body, id=name, delay=delay)
        except RabbitDelayError as error:
            self.history.write(Kind.UNKNOWN, name, detail=f"{type(error).__name__}: {error}")
            return []
        self.history.write(Kind.CONFIRMED, name)
        return [job]

    def put_many(self, topic: str, body: dict[str, Any], count: int) -> list[Job]:
        """Put some jobs without a delay; return those that are confirmed."""
        return [job for _ in range(count) for job in self.put(topic, body)]

    def delete_many(self, jobs: list[Job], *, timeout: float) -> int:
        """Delete these jobs; return their number, or 0 if the delete did not return in time."""
        for job in jobs:
            self.history.write(Kind.DELETE, job.id)
        try:
            self.client.delete_many(jobs, timeout=timeout)
        except RabbitDelayError:
            return 0
        for job in jobs:
            self.history.write(Kind.DELETED, job.id)
        return len(jobs)
