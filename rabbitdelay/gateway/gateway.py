"""The gateway: what the routes call. It owns the client and the jobs that clients hold."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from rabbitdelay import aio
from rabbitdelay.aio.awaiting import drive
from rabbitdelay.aio.client import new_engine
from rabbitdelay.core.administration.counts import Statistics
from rabbitdelay.core.jobs import validation
from rabbitdelay.core.work.responses import Response
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.flow import Flow
from rabbitdelay.errors import (
    BrokerBlocked,
    BrokerUnreachable,
    CutOff,
    DeleteManyFailed,
    LeaseLost,
    ManagementUnreachable,
    NamespaceMissing,
    NoResponse,
    PutManyFailed,
    RabbitDelayError,
)
from rabbitdelay.gateway.bodies.put_requests import Put
from rabbitdelay.gateway.http.body_limit import Overloaded
from rabbitdelay.gateway.leases import lease_text
from rabbitdelay.gateway.leases.held_jobs import HeldJob, HeldJobs
from rabbitdelay.gateway.leases.peer_messages import (
    MAX_CONTENT_TYPE_CHARACTERS,
    MAX_PAYLOAD_BYTES,
    MAX_REASON_CHARACTERS,
    MAX_WAIT_MS,
    Answer,
    Facts,
    Question,
)
from rabbitdelay.gateway.leases.peers import Peers
from rabbitdelay.gateway.leases.settling import Settling, Touched
from rabbitdelay.gateway.problems import LeasesLost, NotAllPut, NotFound, ShuttingDown
from rabbitdelay.gateway.replies import Replies
from rabbitdelay.gateway.settings import GatewaySettings
from rabbitdelay.gateway.waiting.caller_gone import CallerGone
from rabbitdelay.gateway.waiting.pop_desk import PopDesk
from rabbitdelay.models import BYTES, Job, JobSpec

Result = TypeVar("Result")
logger = logging.getLogger("rabbitdelay")

RECONNECT_SECONDS = 1.0
RESPONSE_MARGIN_SECONDS = 5.0
"""Time that another gateway has to pass on a response, besides the wait for it."""


@dataclass(frozen=True, slots=True)
class GatewayStats:
    """Activity of a gateway at one moment."""

    waiting: int
    """Number of clients that wait for a job or a response."""
    leases: int
    """Number of jobs that clients hold."""
    problem: str | None
    """Why the broker cannot be used; None if it can."""
    stopping: bool


class Gateway:
    """Puts, pops and settles jobs for clients over HTTP."""

    def __init__(self, settings: GatewaySettings, client_settings: ClientSettings) -> None:
        self.settings = settings
        self._engine = new_engine(client_settings, None)
        self.client = aio.Client._over(self._engine)  # noqa: SLF001 - as the worker does
        engine = self._engine
        self._peers = Peers(engine, self._serve)
        self.held = HeldJobs(
            lambda: self._peers.own, engine.settings.clock, engine.settings.monotonic
        )
        self._settling = Settling(engine, self.held, self._peers, self.require_broker)
        self._desk = PopDesk(self.client, engine.settings.transport, engine.pop_problem)
        self.replies = Replies(self.client, client_settings.monotonic)
        self._stopping = asyncio.Event()
        self._is_ready = False
        self._giving_back: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._connecting: asyncio.Task[None] | None = None
        self._connect_error: RabbitDelayError = BrokerUnreachable(
            "the gateway has not connected to the broker yet"
        )

    async def start(self) -> None:
        """Start to connect in the background, so that a broker that is away delays nothing."""
        self._connecting = asyncio.create_task(self._connect())

    def stop_handing_out(self) -> None:
        """End long polls and refuse pops. Leases may still be settled."""
        self._stopping.set()
        self._desk.stop()

    async def close(self) -> None:
        """Give back every job that is still held, and close the client."""
        self._stopping.set()
        if self._connecting is not None:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._connecting
        await self._desk.close()
        self._peers.close()
        await self.held.give_back_all()
        await self.client.close(self.settings.put_timeout)

    # State

    def require_broker(self) -> None:
        """Raise the error that says why the broker cannot be used now."""
        publisher = self._engine.connections.ready_publisher()
        if publisher is None:
            raise self._connect_error
        if publisher.failure is not None:
            raise publisher.failure
        if publisher.blocked is not None:
            raise BrokerBlocked(f"the broker has raised an alarm: {publisher.blocked}", sent=False)

    def stats(self) -> GatewayStats:
        """Return what this gateway does now."""
        try:
            self.require_broker()
            problem = None
        except RabbitDelayError as error:
            problem = str(error)
        waiting = len(self._desk) + self._waiting
        return GatewayStats(waiting, len(self.held), problem, self._stopping.is_set())

    def require_ready(self) -> None:
        """Raise the error that says why this gateway should get no requests now."""
        if self._stopping.is_set():
            raise ShuttingDown("this gateway is shutting down")
        self.require_broker()
        if not self._is_ready:
            raise self._connect_error
        reader = self._engine.connections.log_reader
        if reader is None or isinstance(reader.status.failure, NamespaceMissing):
            return  # the first put creates the namespace, and must reach a gateway
        if reader.has_caught_up and not reader.is_current:
            raise CutOff(f"the log of deletes is not current: {reader.status.text}")

    # Putting and deleting

    async def put(self, spec: JobSpec, *, reply: bool = False) -> Job:
        """Put a job, and return it once the broker has confirmed it."""
        self.require_broker()
        job = await self._drive(self._engine.put(spec, None, reply=reply))
        if reply:
            self.replies.expect(job)
        return job

    async def put_many(self, puts: Sequence[Put]) -> list[Job]:
        """Put many jobs, and return them in the order in which they were given.

        Raises:
            NotAllPut: A job failed; the error has the jobs that are confirmed.
        """
        self.require_broker()
        confirmed: dict[int, Job] = {}
        specs = await self._with_reply_to(puts)
        try:
            await self._drive(self._engine.put_each(specs, None, confirmed.__setitem__))
        except PutManyFailed as error:
            raise NotAllPut(error, confirmed) from error.__cause__
        for position, put in enumerate(puts):
            if put.reply:
                self.replies.expect(confirmed[position])
        return [confirmed[position] for position in range(len(puts))]

    async def replace(self, spec: JobSpec) -> Job:
        """Put a job, and delete the earlier jobs with its id."""
        self.require_broker()
        return await self._drive(self._engine.replace(spec, None))

    async def delete(self, id: str) -> None:
        """Delete the jobs with an id, whatever their state."""
        await self.delete_many([id])

    async def delete_many(self, ids: Sequence[str]) -> int:
        """Delete the jobs with these ids, whatever their state; return the number of ids."""
        self.require_broker()
        try:
            return await self.client.delete_many(ids)
        except DeleteManyFailed as error:
            if isinstance(error.__cause__, NamespaceMissing):  # no job was ever put
                return len(ids)
            raise

    async def response(self, id: str, *, wait: float, caller_gone: CallerGone) -> Response | None:
        """Wait for the response to a job that was put with `reply`.

        Raises:
            NotFound: No such job was put with `reply`.
            NoResponse: No response will come.
        """
        validation.check_id(id)
        seconds = min(wait, self.settings.max_wait)
        if id in self.replies:
            self.require_broker()
            return await self._unless_ended(self.replies.response(id, seconds), caller_gone)
        elsewhere = self._unless_ended(self._response_elsewhere(id, seconds), caller_gone)
        return await elsewhere

    # Popping and settling

    async def pop(
        self, topics: Sequence[str], *, max: int, wait: float, caller_gone: CallerGone
    ) -> list[HeldJob]:
        """Reserve up to `max` jobs; wait for the first of them for at most `wait` seconds."""
        if self._stopping.is_set():
            raise ShuttingDown("this gateway hands out no more jobs")
        self.require_broker()
        if self.held.body_bytes >= self.settings.max_memory_bytes:
            raise Overloaded("the jobs that this gateway holds for its clients fill its memory")
        seconds = min(wait, self.settings.max_wait)
        try:
            found = await self._desk.pop(topics, max=max, wait=seconds, caller_gone=caller_gone)
        except NamespaceMissing:  # a topic that does not exist yet is waited for, and so is this
            return []
        held = [self.held.hold(job) for job in found]
        if caller_gone.is_set():
            await self.give_back(held)
            return []
        return held

    async def give_back(self, held: Iterable[HeldJob]) -> None:
        """Return jobs to their queues unchanged whose client has gone."""
        for one in held:
            await self.held.give_back(one)

    def give_back_soon(self, held: Iterable[HeldJob]) -> None:
        """Do the same in the background."""
        task = asyncio.get_running_loop().create_task(self.give_back(held))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def pop_by_priority(
        self, topics: Sequence[str], *, wait: float, caller_gone: CallerGone
    ) -> list[HeldJob]:
        """Reserve the next job of the first of these topics that has one."""
        if len(topics) > 1:
            for topic in topics:
                found = await self.pop([topic], max=1, wait=0, caller_gone=caller_gone)
                if found:
                    return found
        return await self.pop(topics, max=1, wait=wait, caller_gone=caller_gone)

    def topic_of(self, lease: str) -> str:
        """Return the topic of a lease's job; raise NotALease if it is not a lease."""
        return lease_text.decode(lease).topic

    def topics_of(self, leases: Sequence[str]) -> set[str]:
        """Return the topics of those of several leases that are not lost."""
        found = set()
        for lease in leases:
            with suppress(LeaseLost):
                found.add(self.topic_of(lease))
        return found

    async def finish(self, lease: str) -> None:
        """Finish the job of a lease."""
        await self._settling.finish(lease)

    async def finish_many(self, leases: Sequence[str]) -> None:
        """Finish the jobs of several leases, all that can be.

        Raises:
            LeasesLost: Some leases are lost; the jobs of the others are finished.
        """
        lost = []
        for lease in leases:
            try:
                await self.finish(lease)
            except LeaseLost as error:
                if len(leases) == 1:
                    raise
                lost.append((lease, str(error)))
        if lost:
            raise LeasesLost(len(leases) - len(lost), lost)

    async def release(self, lease: str, delay: float | timedelta | None) -> None:
        """Release the job of a lease."""
        await self._settling.release(lease, delay)

    async def touch(self, lease: str) -> Touched:
        """Restart the ttr of a lease's job; return the time that is left, and the new lease."""
        return await self._settling.touch(lease)

    async def bury(self, lease: str, reason: str) -> None:
        """Bury the job of a lease."""
        await self._settling.bury(lease, reason)

    async def finish_id(self, id: str) -> None:
        """Finish the jobs with an id, on whichever gateway holds them; else delete by id."""
        if not await self._settling.finish_id(validation.check_id(id)):
            await self.delete(id)

    # Topics and parked jobs

    async def topics(self, *topics: str, delayed: bool = False) -> Statistics:
        """Count the jobs of these topics, or of all.

        Raises:
            NotFound: A topic does not exist.
            ManagementUnreachable: No topics were given, and only the management API can list them.
        """
        self.require_broker()
        found = await self.client.stats(*topics, delayed=delayed)
        if found.management_error and not topics:
            raise ManagementUnreachable(found.management_error)
        if found.missing:
            raise NotFound(f"there is no topic {', '.join(found.missing)}")
        return found

    async def pause(self, topic: str) -> None:
        """Pause a topic."""
        self.require_broker()
        await self.client.pause(topic)

    async def resume(self, topic: str) -> None:
        """Resume a topic."""
        self.require_broker()
        await self.client.resume(topic)

    async def purge(self, topic: str) -> int:
        """Delete every job of a topic; return the number that was removed at once."""
        self.require_broker()
        return await self.client.purge(topic)

    def buried(self, topic: str) -> aio.BuriedJobs:
        """Return the buried jobs of a topic."""
        self.require_broker()
        return self.client.buried(topic)

    def unrouted(self) -> aio.UnroutedJobs:
        """Return the unrouted jobs."""
        self.require_broker()
        return self.client.unrouted()

    # Other gateways

    async def _serve(self, question: Question, takes_longer: Callable[[], None]) -> Answer:
        """Do what another gateway asks for."""
        if question.verb == "response":
            return await self._serve_response(question, takes_longer)
        if question.verb in ("release", "bury"):  # these wait for a confirm
            takes_longer()
        return await self._settling.serve(question)

    async def _serve_response(self, question: Question, takes_longer: Callable[[], None]) -> Answer:
        if question.id not in self.replies:
            return Answer(Facts(result="unknown"))
        takes_longer()
        wait = min(question.wait_ms / 1000, self.settings.max_wait)
        try:
            found = await self.replies.response(question.id, wait)
        except NoResponse as error:
            return Answer(Facts(result="no_response", detail=str(error)[:MAX_REASON_CHARACTERS]))
        if found is None:
            return Answer(Facts(result="waiting"))
        if len(found.payload) > MAX_PAYLOAD_BYTES:
            detail = "the response is too large to be passed on by another gateway"
            return Answer(Facts(result="no_response", detail=detail))
        content_type = found.content_type[:MAX_CONTENT_TYPE_CHARACTERS]
        return Answer(Facts(result="done", content_type=content_type), found.payload)

    async def _response_elsewhere(self, id: str, wait: float) -> Response | None:
        """Wait for a response that arrives at another gateway."""
        self.require_broker()
        question = Question(verb="response", id=id, wait_ms=min(int(wait * 1000), MAX_WAIT_MS))
        answer = await self._peers.ask_all(question, wait + RESPONSE_MARGIN_SECONDS)
        if answer is None:
            raise NotFound("no job with this id was put with reply, or too long ago")
        match answer.facts.result:
            case "done":
                return Response(id, answer.payload, answer.facts.content_type or BYTES)
            case "no_response":
                raise NoResponse(answer.facts.detail)
        return None

    # Helpers

    async def _drive(self, flow: Flow[Result]) -> Result:
        return await drive(flow, self._engine.settings.transport)

    async def _with_reply_to(self, puts: Sequence[Put]) -> list[JobSpec]:
        """Return the jobs, with this gateway's reply queue where a response is wanted."""
        if not any(put.reply for put in puts):
            return [put.spec for put in puts]
        queue = await self.client.reply_queue()
        return [replace(put.spec, reply_to=queue) if put.reply else put.spec for put in puts]

    async def _unless_ended(
        self, waiting: Coroutine[Any, Any, Result], caller_gone: CallerGone
    ) -> Result | None:
        """Await a long poll; return None if its caller is gone or the gateway stops first."""
        poll = asyncio.create_task(waiting)
        ends = [asyncio.create_task(one.wait()) for one in (caller_gone, self._stopping)]
        self._waiting += 1
        try:
            await asyncio.wait([poll, *ends], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting -= 1
            for task in (poll, *ends):
                task.cancel()
        try:
            return await poll
        except asyncio.CancelledError:
            return None

    async def _connect(self) -> None:
        """Connect, and read the log of deletes if there is one; try again until it works."""
        for attempt in (self.client.connect, self._peers.join, self._read_log):
            while True:
                try:
                    await attempt()
                    break
                except RabbitDelayError as error:
                    self._connect_error = error
                    logger.info("gateway: not ready yet (%s)", error)
                    await asyncio.sleep(RECONNECT_SECONDS)
        self._is_ready = True

    async def _read_log(self) -> None:
        await self._drive(self._engine.known_deletes(self.settings.put_timeout))
