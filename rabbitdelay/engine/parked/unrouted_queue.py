"""The queue `unrouted`: list, show, republish and drop its jobs.

During a pass, the same client does not begin a rescue. Both would take the same messages,
and neither would know which jobs the other has republished.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from rabbitdelay.core.jobs.envelope import Message, fresh_headers
from rabbitdelay.core.parked import unrouted
from rabbitdelay.core.parked.parked_job import Choice, Ids, SentJobs
from rabbitdelay.core.parked.unrouted import UnroutedJob
from rabbitdelay.core.publish.outbox import LadderEntry, Target
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.connections import Connections
from rabbitdelay.engine.flow import Flow, Wait
from rabbitdelay.engine.parked.parked_queue import OnTried, ParkedQueue, Pass
from rabbitdelay.engine.parked.sending import Copy

Where = Callable[[UnroutedJob], bool] | None


class UnroutedQueue(ParkedQueue[UnroutedJob]):
    """Reads and republishes the jobs that could not be routed."""

    def __init__(self, connections: Connections, settings: ClientSettings) -> None:
        super().__init__(connections, settings, settings.topology.unrouted)

    def looking(
        self, topic: str | None, ids: Ids, where: Where, limit: int | None
    ) -> Pass[UnroutedJob]:
        """Return a pass that lists jobs."""
        return Pass(self, _choice(topic, ids, where), limit)

    def show(self, id: str) -> Flow[list[UnroutedJob]]:
        """Return the jobs with an id."""
        one_pass = self.looking(None, id, None, None)
        found: list[UnroutedJob] = []
        while batch := (yield from one_pass.next_found()):
            found += batch
        return found

    def retry(
        self,
        topic: str | None,
        ids: Ids,
        where: Where,
        limit: int | None,
        *,
        timeout: float | None,
        on_tried: OnTried[UnroutedJob] | None,
    ) -> Flow[SentJobs]:
        """Republish jobs with the rest of their delay, and declare missing topics."""
        choice = _choice(topic, ids, where)
        return (yield from self.send_on(choice, limit, timeout=timeout, on_tried=on_tried))

    def drop_chosen(
        self, topic: str | None, ids: Ids, where: Where, limit: int | None
    ) -> Flow[int]:
        """Remove jobs for good; return their number."""
        return self.drop(_choice(topic, ids, where), limit)

    def begin_pass(self) -> Flow[None]:
        """Prevent rescues by this client, and wait until one in progress has ended."""
        self.connections.rescue_guard.begin()
        publisher = yield from self.connections.publisher()
        with suppress(TimeoutError):  # its unacknowledged messages are not counted
            yield Wait(publisher.rescue_ended(), self.timeout)

    def end_pass(self) -> None:
        """Resume the rescue."""
        self.connections.rescue_guard.end()

    def read(self, exchange: str, routing_key: str, message: Message) -> UnroutedJob:
        """Return an unrouted job, parsed as far as possible."""
        return unrouted.read(self.topology, exchange, routing_key, message)

    def copy(self, found: UnroutedJob) -> Copy | None:
        """Return the copy to publish; None if the message cannot be parsed."""
        if found.topic is None or unrouted.way_on(self.topology, found) is None:
            return None
        message = replace(found.message, headers=fresh_headers(found.message.headers))
        if not found.to_bury:
            return Copy(message, LadderEntry(found.topic, found.remaining_ms))
        buried, _ = self.topology.topic(found.topic)
        return Copy(message, Target(self.topology.buried_exchange, found.topic, buried))

    def why_missing(self) -> str:
        """Return the reason why the queue does not exist, although its namespace does."""
        command = f"rabbitdelay --namespace {self.topology.namespace} topology apply"
        return f"it was deleted; `{command}` declares it again"


def _choice(topic: str | None, ids: Ids, where: Where) -> Choice[UnroutedJob]:
    if topic is None:
        return Choice(ids, where)
    return Choice(ids, lambda job: job.topic == topic and (where is None or where(job)))
