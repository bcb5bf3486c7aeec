"""Settling jobs by their leases, on whichever gateway the request arrives.

This file owns four rules:

1. The gateway that holds a job settles it by an ack. Any other one passes the request on to it.
2. If that gateway is gone or silent, a finish becomes a tombstone for exactly this put of the job,
   so that it is durable. The other verbs are answered with LeaseLost: the job goes back to its
   queue.
3. After the deadline of the lease, and once the job was settled, every verb raises LeaseLost.
4. A request that is answered with success has been carried out; otherwise an error is raised.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from rabbitdelay.aio.awaiting import drive
from rabbitdelay.core.jobs import validation
from rabbitdelay.engine.client import ClientEngine
from rabbitdelay.errors import (
    InvalidJob,
    LeaseLost,
    NamespaceMissing,
    OutcomeUnknown,
    RabbitDelayError,
)
from rabbitdelay.gateway.leases import lease_text
from rabbitdelay.gateway.leases.held_jobs import Ended, HeldJob, HeldJobs, lost
from rabbitdelay.gateway.leases.lease_text import LeaseText
from rabbitdelay.gateway.leases.peer_messages import (
    MAX_REASON_CHARACTERS,
    Answer,
    Facts,
    Question,
)
from rabbitdelay.gateway.leases.peers import Peers

LONGEST_LEASE_MS = 2 * validation.MAX_TTR_MS
"""Time from now to the end of a lease, at most, on clocks that may differ by a day."""
LONGEST_SECONDS = 35.0
"""Time in which another gateway publishes the copy of a released job, which times out itself."""


@dataclass(frozen=True, slots=True)
class Touched:
    """A lease whose ttr was restarted."""

    time_left: float
    lease: str
    """The lease with its new deadline. The old one can still be used."""


class Settling:
    """Settles jobs for clients and for other gateways."""

    def __init__(
        self,
        engine: ClientEngine,
        held: HeldJobs,
        peers: Peers,
        require_broker: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._held = held
        self._peers = peers
        self._require_broker = require_broker
        """Raises the error that says why the broker cannot be used now."""
        self._clock = engine.settings.clock

    async def finish(self, text: str) -> None:
        """Finish a job: remove it permanently."""
        lease = lease_text.decode(text)
        held = self._find(lease)
        if held is not None:
            try:
                await self._finish(held)
            except LeaseLost:
                if self._held.ended(lease.nonce) is not Ended.DISCONNECTED:
                    raise
            else:
                return
        elif not self._is_own(lease):
            answer = await self._ask(lease, Question(verb="finish", lease=text))
            if answer is not None:
                _check(answer)
                return
        await self._finish_for_good(lease)

    async def release(self, text: str, delay: float | timedelta | None) -> None:
        """Release a job, so that it is retried."""
        delay_ms = None if delay is None else validation.check_delay_ms(delay)
        lease = lease_text.decode(text)
        held = self._find(lease)
        if held is not None:
            await self._release(held, delay_ms)
        else:
            await self._elsewhere(lease, Question(verb="release", lease=text, delay_ms=delay_ms))

    async def touch(self, text: str) -> Touched:
        """Restart the ttr of a job."""
        lease = lease_text.decode(text)
        held = self._find(lease)
        if held is not None:
            return await self._touch(held)
        facts = await self._elsewhere(lease, Question(verb="touch", lease=text))
        return Touched(facts.time_left, facts.lease or text)

    async def bury(self, text: str, reason: str) -> None:
        """Bury a job."""
        lease = lease_text.decode(text)
        held = self._find(lease)
        if held is not None:
            await self._bury(held, reason)
        else:
            reason = reason[:MAX_REASON_CHARACTERS]
            await self._elsewhere(lease, Question(verb="bury", lease=text, reason=reason))

    async def finish_id(self, id: str) -> bool:
        """Finish the jobs with an id, on the gateway that holds them; return whether one does."""
        if await self._finish_held(id):
            return True
        answer = await self._peers.ask_all(Question(verb="finish_id", id=id))
        return answer is not None and answer.facts.result == "done"

    async def serve(self, question: Question) -> Answer:
        """Settle a job that this gateway holds, for another one."""
        if question.verb == "finish_id":
            is_done = await self._finish_held(question.id)
            return Answer(Facts(result="done" if is_done else "unknown"))
        try:
            return Answer(await self._serve_lease(question))
        except LeaseLost as error:
            return Answer(Facts(result="lost", detail=str(error)[:MAX_REASON_CHARACTERS]))
        except RabbitDelayError as error:
            return Answer(Facts(result="failed", detail=str(error)[:MAX_REASON_CHARACTERS]))

    # Where the job is held

    def _find(self, lease: LeaseText) -> HeldJob | None:
        """Return the job of a lease if it is held here."""
        held = self._held.find(lease.nonce)
        if held is None:
            return None
        job = held.job
        if (job.topic, job.id, job.token) != (lease.topic, lease.id, lease.token):
            raise lost(None)
        return held

    async def _serve_lease(self, question: Question) -> Facts:
        lease = lease_text.decode(question.lease)
        held = self._find(lease)
        if held is None:
            if question.verb == "finish" and self._is_disconnected(lease):
                await self._finish_for_good(lease)
                return Facts(result="done")
            raise lost(self._held.ended(lease.nonce))
        match question.verb:
            case "finish":
                await self._finish(held)
            case "release":
                await self._release(held, question.delay_ms)
            case "bury":
                await self._bury(held, question.reason)
            case "touch":
                touched = await self._touch(held)
                return Facts(result="done", time_left=touched.time_left, lease=touched.lease)
        return Facts(result="done")

    async def _finish(self, held: HeldJob) -> None:
        await held.job.finish()
        self._held.settled(held)

    async def _touch(self, held: HeldJob) -> Touched:
        await held.job.touch()
        return Touched(held.job.time_left, self._held.renewed(held))

    async def _release(self, held: HeldJob, delay_ms: int | None) -> None:
        delay = None if delay_ms is None else timedelta(milliseconds=delay_ms)
        try:
            await held.job.release(delay)
        except LeaseLost:
            raise
        except BaseException:  # the copy is published later, or the job returns to its queue
            self._held.settled(held)
            raise
        self._held.settled(held)

    async def _bury(self, held: HeldJob, reason: str) -> None:
        try:
            await held.job.bury(reason)
        except (LeaseLost, InvalidJob):
            raise
        except BaseException:  # the same
            self._held.settled(held)
            raise
        self._held.settled(held)

    async def _finish_held(self, id: str) -> bool:
        is_done = False
        for held in self._held.with_id(id):
            with suppress(LeaseLost):
                await self._finish(held)
                is_done = True
        return is_done

    # Where it is not

    def _is_own(self, lease: LeaseText) -> bool:
        """Whether this gateway held the job, and does not any more; raise unless it lost it."""
        if not self._peers.is_own(lease.peer):
            return False
        if not self._is_disconnected(lease):
            raise lost(self._held.ended(lease.nonce))
        return True

    def _is_disconnected(self, lease: LeaseText) -> bool:
        """Whether the job went back to the broker because the connection was lost."""
        return self._held.ended(lease.nonce) is Ended.DISCONNECTED

    async def _elsewhere(self, lease: LeaseText, question: Question) -> Facts:
        """Have the gateway that holds a job settle it."""
        answer = None if self._is_own(lease) else await self._ask(lease, question)
        if answer is None:
            raise LeaseLost("this lease is over: the gateway that held the job does not answer")
        return _check(answer)

    async def _ask(self, lease: LeaseText, question: Question) -> Answer | None:
        self._require_broker()
        return await self._peers.ask(lease.peer, question, LONGEST_SECONDS)

    async def _finish_for_good(self, lease: LeaseText) -> None:
        """Record that a job is finished which no gateway holds."""
        now_ms = self._clock() * 1000
        if now_ms >= lease.deadline_ms:
            raise lost(Ended.TIMED_OUT)
        # The record is kept until then, and a client can write any time into a lease.
        if max(lease.deadline_ms, lease.due_ms) > now_ms + LONGEST_LEASE_MS:
            raise LeaseLost("this lease is over: its times cannot be right")
        if not lease.token:
            raise LeaseLost(
                "this lease is over: the job went back to the broker, and it cannot be told apart "
                "from others, because another program has put it"
            )
        self._require_broker()
        deleted = self._engine.delete_exactly(lease.id, lease.token, lease.due_ms, None)
        with suppress(NamespaceMissing):  # and with it the job
            await drive(deleted, self._engine.settings.transport)


def _check(answer: Answer) -> Facts:
    """Return what another gateway did; raise the error that it reports."""
    facts = answer.facts
    match facts.result:
        case "done":
            return facts
        case "failed":
            raise OutcomeUnknown(facts.detail or "another gateway has failed", sent=True)
    raise LeaseLost(facts.detail or "this lease is over")
