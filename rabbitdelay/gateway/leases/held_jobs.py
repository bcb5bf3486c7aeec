"""The jobs that this gateway holds for its clients, by lease and by id."""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial

from rabbitdelay.aio import ReservedJob
from rabbitdelay.errors import LeaseLost, RabbitDelayError
from rabbitdelay.gateway.leases.lease_text import NONCE_CHARACTERS, LeaseText
from rabbitdelay.system_time import TimeSource

MOST_REMEMBERED = 10_000
"""Number of ended leases of which it is remembered how they ended."""


class Ended(Enum):
    """How a lease has ended."""

    SETTLED = "the job was already settled, or handed back"
    TIMED_OUT = "the job was retried because its ttr had passed"
    DISCONNECTED = "the job went back to the broker when the gateway's connection was lost"


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A reserved job and the lease that names it."""

    job: ReservedJob
    lease: str
    nonce: str = ""


class HeldJobs:
    """Keeps each reserved job until it is settled or lost.

    Args:
        peer: Returns the name by which other gateways reach this one.
        clock: Returns the Unix time in seconds.
        monotonic: Returns the seconds on the clock that ends leases.
    """

    def __init__(self, peer: Callable[[], str], clock: TimeSource, monotonic: TimeSource) -> None:
        self._peer = peer
        self._clock = clock
        self._monotonic = monotonic
        self._held: dict[str, HeldJob] = {}
        self._deadlines: dict[str, float] = {}
        self._by_id: dict[str, set[str]] = {}
        self._ended: OrderedDict[str, Ended] = OrderedDict()
        self.body_bytes = 0
        """Size of the bodies of all jobs that are held."""

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, job: ReservedJob) -> HeldJob:
        """Keep a job; return it with its lease."""
        nonce = secrets.token_urlsafe(NONCE_CHARACTERS * 3 // 4)
        held = HeldJob(job, self._text(job, nonce), nonce)
        self._held[nonce] = held
        self.body_bytes += len(job.payload)
        self._by_id.setdefault(job.id, set()).add(nonce)
        self._deadlines[nonce] = self._monotonic() + job.time_left
        job.on_lost(partial(self._lost, nonce))
        return held

    def find(self, nonce: str) -> HeldJob | None:
        """Return the job of a lease; None if it is not held."""
        return self._held.get(nonce)

    def ended(self, nonce: str) -> Ended | None:
        """Return how a lease has ended; None if it has not, or is not remembered."""
        return self._ended.get(nonce)

    def with_id(self, id: str) -> list[HeldJob]:
        """Return the held jobs with an id."""
        return [self._held[nonce] for nonce in self._by_id.get(id, ())]

    def renewed(self, held: HeldJob) -> str:
        """Return the text of a lease whose ttr was restarted."""
        self._deadlines[held.nonce] = self._monotonic() + held.job.time_left
        return self._text(held.job, held.nonce)

    def settled(self, held: HeldJob) -> None:
        """Forget a job that is settled."""
        self._end(held.nonce, Ended.SETTLED)

    async def give_back(self, held: HeldJob) -> None:
        """Return a job to the broker unchanged, unless it is settled or lost already."""
        if self._held.get(held.nonce) is not held:
            return
        self._end(held.nonce, Ended.SETTLED)
        with suppress(RabbitDelayError):  # it was lost, or its copy is published later
            await held.job.hand_back()

    async def give_back_all(self) -> None:
        """Return every job to the broker unchanged."""
        for held in tuple(self._held.values()):
            await self.give_back(held)

    def _text(self, job: ReservedJob, nonce: str) -> str:
        return LeaseText(
            peer=self._peer(),
            topic=job.topic,
            id=job.id,
            token=job.token,
            put_ms=job.put_ms,
            due_ms=job.due_ms,
            attempt=job.attempt,
            deadline_ms=int((self._clock() + job.time_left) * 1000),
            nonce=nonce,
        ).encode()

    def _lost(self, nonce: str) -> None:
        deadline = self._deadlines.get(nonce)
        if deadline is not None:
            is_over = self._monotonic() >= deadline
            self._end(nonce, Ended.TIMED_OUT if is_over else Ended.DISCONNECTED)

    def _end(self, nonce: str, ended: Ended) -> None:
        held = self._held.pop(nonce, None)
        if held is None:
            return
        self.body_bytes -= len(held.job.payload)
        del self._deadlines[nonce]
        nonces = self._by_id[held.job.id]
        nonces.discard(nonce)
        if not nonces:
            del self._by_id[held.job.id]
        self._ended[nonce] = ended
        if len(self._ended) > MOST_REMEMBERED:
            self._ended.popitem(last=False)


def lost(ended: Ended | None) -> LeaseLost:
    """Return the error for a lease that has ended."""
    why = "the job is not held any more" if ended is None else ended.value
    return LeaseLost(f"this lease is over: {why}")
