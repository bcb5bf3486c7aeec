"""The responses that clients over HTTP wait for, kept until they are old."""

from collections import OrderedDict
from dataclasses import dataclass, replace

from rabbitdelay import aio
from rabbitdelay.core.work.responses import Response
from rabbitdelay.models import Job
from rabbitdelay.system_time import TimeSource

KEPT_SECONDS = 24 * 3600.0
MOST_KEPT = 100_000
"""Number of jobs whose responses this gateway remembers; older ones are forgotten."""

MOST_BYTES = 64 * 1024 * 1024
"""Size of all responses that are remembered."""


@dataclass(slots=True)
class _Reply:
    job: Job
    forget_at: float
    response: Response | None = None


class Replies:
    """Remembers the jobs that were put with `reply`, and their responses once they have arrived.

    A response can be read again, because a client may be cut off while it reads.
    """

    def __init__(self, client: aio.Client, monotonic: TimeSource) -> None:
        self._client = client
        self._monotonic = monotonic
        self._replies: OrderedDict[str, _Reply] = OrderedDict()
        self._bytes = 0
        """Size of the responses that have arrived."""

    def __contains__(self, id: str) -> bool:
        return id in self._replies

    def expect(self, job: Job) -> None:
        """Remember a job that was put with `reply`, until a day after it is due."""
        now = self._monotonic()
        forget_at = now + job.delay.total_seconds() + KEPT_SECONDS
        self._forget(job.id)
        # Without its body: a day of bodies is more than a process has memory for.
        self._replies[job.id] = _Reply(replace(job, payload=b""), forget_at)
        oldest_id, oldest = next(iter(self._replies.items()))
        if oldest.forget_at < now or len(self._replies) > MOST_KEPT:
            self._forget(oldest_id)

    async def response(self, id: str, wait: float) -> Response | None:
        """Wait for the response to a job; return None if it has not arrived.

        Raises:
            KeyError: No job with this id was put here with `reply`.
            NoResponse: No response will come.
        """
        reply = self._replies[id]
        if reply.response is None:
            found = await self._client.response(reply.job, wait=wait)
            if reply.response is None and found is not None:
                reply.response = found
                self._limit_bytes(reply)
        return reply.response

    def _limit_bytes(self, newest: _Reply) -> None:
        """Forget the oldest responses if all of them are too large together."""
        self._bytes += _size(newest)
        if self._bytes <= MOST_BYTES:
            return
        for job_id, reply in tuple(self._replies.items()):
            if reply is not newest and _size(reply):
                self._forget(job_id)
            if self._bytes <= MOST_BYTES:
                return

    def _forget(self, job_id: str) -> None:
        forgotten = self._replies.pop(job_id, None)
        if forgotten is not None:
            self._bytes -= _size(forgotten)


def _size(reply: _Reply) -> int:
    return 0 if reply.response is None else len(reply.response.payload)
