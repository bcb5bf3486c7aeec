"""Responses: a handler's return value as a message, and back."""

from dataclasses import dataclass, field
from typing import Any

from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.jobs.validation import encode_body
from rabbitdelay.core.publish.outbox import Target
from rabbitdelay.core.settle.failure import Failure, bounded
from rabbitdelay.core.settle.republish import ERROR, ERROR_TYPE, REASON
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.core.work.reply_queues import ReplyQueues
from rabbitdelay.errors import NoResponse
from rabbitdelay.models import BYTES, JSON, Job, read_body

MAX_RESPONSE_BYTES = 16 * 1024 * 1024
"""The broker's own limit. The handler is done already, so a lower one would only lose responses."""


@dataclass(frozen=True, slots=True)
class Response:
    """The value that a handler returned for a job."""

    id: str
    """The job's id."""
    payload: bytes = field(repr=False)
    content_type: str

    @property
    def body(self) -> Any:  # noqa: ANN401 - whatever JSON holds
        """The return value: parsed JSON, a str, or bytes."""
        return read_body(self.payload, self.content_type)


def of_value(job: Job, value: object) -> Message:
    """Return the response with a return value; raise InvalidJob if it is not JSON-serializable."""
    payload, content_type = encode_body(value, None, MAX_RESPONSE_BYTES)
    headers = {"rd-token": job.token, "rd-attempt": job.attempt}
    return Message(payload, headers, job.id, content_type, correlation_id=job.id)


def of_failure(job: Job, reason: str, failure: Failure | None = None) -> Message:
    """Return the response that says why no return value will come."""
    headers: dict[str, Any] = {
        "rd-token": job.token,
        "rd-attempt": job.attempt,
        REASON: bounded(reason),
    }
    if failure is not None:
        headers |= {ERROR: failure.text, ERROR_TYPE: failure.kind}
    return Message(b"null", headers, job.id, JSON, correlation_id=job.id)


def read(message: Message) -> Response | NoResponse:
    """Return the response in a message, or the reason why none will come."""
    job_id = message.correlation_id or ""
    reason, error = message.headers.get(REASON), message.headers.get(ERROR)
    if reason is not None:
        return NoResponse(f"no response of job {job_id}: {reason}{f': {error}' if error else ''}")
    return Response(job_id, message.body, message.content_type or BYTES)


def targets(topology: Topology, allowed: ReplyQueues, job: Job, *, keep: bool) -> list[Target]:
    """Return the targets of a job's response: its `reply_to`, and the queue of kept responses."""
    queue = job.reply_to
    may_answer = queue is not None and allowed.allows(queue)
    found = [Target(*_address(topology, queue))] if queue is not None and may_answer else []
    if keep:
        part = topology.responses(job.topic)
        # Do not wait until a new queue is safe, because the job's ttr passes in the meantime.
        found.append(
            Target(topology.responses_exchange, part.queue.name, part, waits_until_stable=False)
        )
    return found


def _address(topology: Topology, queue: str) -> tuple[str, str]:
    """Return the exchange and routing key of a queue.

    A queue of the namespace is bound to its exchange of responses. Any other is reached through the
    default exchange.
    """
    is_ours = queue.startswith(topology.prefix)
    return (topology.responses_exchange if is_ours else "", queue)
