"""Append the records that consumers write: fences, snapshots, and requests for a snapshot."""

import secrets

from rabbitdelay.core.deletes import records
from rabbitdelay.core.deletes.records import known_until
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.publish.pending import Pending, Resolve, Target
from rabbitdelay.core.topology.objects import Part
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.publish.publisher import Publisher
from rabbitdelay.models import JSON, Job

TIMEOUT_SECONDS = 10.0


def pending_record(
    part: Part,
    body: bytes,
    label: str,
    resolve: Resolve,
    *,
    now: float,
    deadline: float,
    may_found: bool,
    is_expendable: bool = False,
) -> Pending:
    """Return the publish that appends a record to a stream, or to the queue of one exchange.

    Unless `may_found` is set, a namespace that does not exist is an error.
    """
    name = part.queue.name
    target = Target(name, "", part, waits_until_stable=not part.is_stream, may_found=may_found)
    token = secrets.token_hex(8)
    message = Message(body, {"rd-token": token}, token, JSON)
    return Pending(message, target, now, deadline, resolve, label, is_expendable=is_expendable)


class Appender:
    """Appends records without waiting for room in the publish window. Thread-safe."""

    def __init__(self, publisher: Publisher, log: Part, *, may_found: bool = True) -> None:
        self._publisher = publisher
        self._log = log
        self._may_found = may_found

    @property
    def is_blocked(self) -> bool:
        """Whether the broker blocks publishers because of an alarm."""
        return self._publisher.blocked is not None

    def keep_known(self, job: Job, due_ms: int) -> Future[None]:
        """Append a record that keeps deletes of a job's id until a copy of the job is due."""
        return self.append(self._log, records.encode(known_until(job.id, due_ms)))

    def append(self, part: Part, body: bytes, *, is_expendable: bool = False) -> Future[None]:
        """Append a record; the future is done when the broker has confirmed it.

        An expendable record does not delay closing the client.
        """
        future: Future[None] = Future()

        def resolve(error: Exception | None) -> None:
            future.set_exception(error) if error is not None else future.set_result(None)

        now = self._publisher.monotonic()
        self._publisher.submit_copy(
            pending_record(
                part,
                body,
                f"record for {part.queue.name}",
                resolve,
                now=now,
                deadline=now + TIMEOUT_SECONDS,
                may_found=self._may_found,
                is_expendable=is_expendable,
            )
        )
        return future
