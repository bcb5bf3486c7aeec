"""The responses that clients over HTTP wait for, kept until they are old."""

from collections import OrderedDict
from dataclasses import dataclass

from rabbitdelay import aio
from rabbitdelay.core.work.responses import Response
from rabbitdelay.models import Job
from rabbitdelay.system_time import TimeSource

KEPT_SECONDS = 24 * 3600.0
MOST_KEPT = 100_000
"""Number of jobs whose responses this gateway remembers; older ones are forgotten."""


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

    def __contains__(self, id: str) -> bool:
        return id in self._replies

    def expect(self, job: Job) -> None:
        """Remember a job that was put with `reply`, until a day after it is due."""
        now = self._monotonic()
        self._replies[job.id] = _Reply(job, now + job.delay.total_seconds() + KEPT_SECONDS)
        self._replies.move_to_end(job.id)
        oldest = next(iter(self._replies.values()))
        if oldest.forget_at < now or len(self._replies) > MOST_KEPT:
            self._replies.popitem(last=False)

    async def response(self, id: str, wait: float) -> Response | None:
        """Wait for the response to a job; return None if it has not arrived.

        Raises:
            KeyError: No job with this id was put here with `reply`.
            NoResponse: No response will come.
        """
        reply = self._replies[id]
        if reply.response is None:
            found = await self._client.response(reply.job, wait=wait)
            reply.response = found or reply.response
        return reply.response
