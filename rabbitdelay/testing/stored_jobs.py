"""The jobs that are in the broker, read from its queues."""

from collections.abc import Iterator

from rabbitdelay.core.amqp.decode import Deliveries, Delivery
from rabbitdelay.core.deletes import records
from rabbitdelay.core.deletes.tombstones import Tombstones
from rabbitdelay.core.jobs import envelope, validation
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.parked.buried import BuriedJob
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import NotAJob
from rabbitdelay.models import Job
from rabbitdelay.testing.driver.endpoint import Endpoint
from rabbitdelay.testing.model.events import Delivered
from rabbitdelay.testing.model.message import Entry
from rabbitdelay.testing.wire import outbound

_NO_HEX = "0" * validation.RANDOM_HEX_DIGITS


class StoredJobs:
    """The jobs of one namespace, in the place of the broker."""

    def __init__(self, endpoint: Endpoint, topology: Topology) -> None:
        self._endpoint = endpoint
        self._topology = topology

    def waiting(self, topic: str) -> list[Job]:
        """Return the delayed, ready and reserved jobs of a topic that are not deleted, by due."""
        tombstones = self._tombstones()
        found = [self._job(entry, topic) for entry in self._entries_of(topic)]
        alive = [job for job in found if job is not None and not _is_dead(job, tombstones)]
        return sorted(alive, key=lambda job: job.due_ms)

    def buried(self, topic: str) -> list[BuriedJob]:
        """Return the buried jobs of a topic, the oldest first."""
        entries = self._entries(self._topology.buried_queue(topic))
        return [BuriedJob(_decoded(entry), topic) for entry in entries]

    def _entries_of(self, topic: str) -> Iterator[Entry]:
        ready = self._topology.ready_queue(topic)
        hold = f"{self._topology.prefix}hold."
        for name in self._endpoint.vhost.queues:
            if name == ready or name.startswith(hold):
                for entry in self._entries(name):
                    if _topic(entry) == topic:
                        yield entry

    def _entries(self, queue: str) -> Iterator[Entry]:
        """Yield the messages of a queue: those that are delivered, and those that are not."""
        found = self._endpoint.vhost.queues.get(queue)
        if found is not None:
            sessions = self._endpoint.sessions
            yield from (entry for name, entry in sessions.unacknowledged() if name == queue)
            yield from found.entries()

    def _job(self, entry: Entry, topic: str) -> Job | None:
        now_ms = int(self._endpoint.timeline.time() * 1000)
        message = _decoded(entry)
        try:
            return envelope.decode(message, topic=topic, now_ms=now_ms, random_hex=_NO_HEX)
        except NotAJob:
            return None

    def _tombstones(self) -> Tombstones:
        """Return what the log of deletes says."""
        tombstones = Tombstones()
        for entry in self._entries(self._topology.tombstones):
            record = records.decode(entry.message.content.body)
            tombstones.add(record, entry.position)
        return tombstones


def _topic(entry: Entry) -> str:
    return entry.message.routing_key.split(".", ladder.READY_INDEX)[-1]


def _is_dead(job: Job, tombstones: Tombstones) -> bool:
    return tombstones.kills(job.topic, job.id, job.token, job.put_ms) is not None


def _decoded(entry: Entry) -> Message:
    """Return a message as a consumer decodes it."""
    message = entry.message
    content = message.delivered({})
    event = Delivered(1, "", 1, is_redelivered=False, message=message, content=content)
    (found,) = Deliveries().feed(outbound.delivered(event))
    assert isinstance(found, Delivery)
    return found.message
