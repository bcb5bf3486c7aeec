"""The gateway: what the routes call. It owns the client and the jobs that clients hold."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial

from rabbitdelay import aio
from rabbitdelay.aio.awaiting import drive
from rabbitdelay.aio.client import new_engine
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.errors import (
    BrokerBlocked,
    BrokerUnreachable,
    LeaseLost,
    NamespaceMissing,
    RabbitDelayError,
)
from rabbitdelay.gateway.leases.held_jobs import HeldJob, HeldJobs
from rabbitdelay.gateway.problems import ShuttingDown
from rabbitdelay.gateway.settings import GatewaySettings
from rabbitdelay.models import Job, JobSpec

logger = logging.getLogger("rabbitdelay")

RECONNECT_SECONDS = 1.0


class Gateway:
    """Puts, pops and settles jobs for clients over HTTP."""

    def __init__(self, settings: GatewaySettings, client_settings: ClientSettings) -> None:
        self.settings = settings
        self._engine = new_engine(client_settings, None)
        self.client = aio.Client._over(self._engine)  # noqa: SLF001 - as the worker does
        self.held = HeldJobs()
        self._stopping = asyncio.Event()
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

    async def close(self) -> None:
        """Give back every job that is still held, and close the client."""
        self._stopping.set()
        if self._connecting is not None:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._connecting
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

    def require_ready(self) -> None:
        """Raise the error that says why this gateway should get no requests now."""
        if self._stopping.is_set():
            raise ShuttingDown("this gateway is shutting down")
        self.require_broker()

    # Putting and deleting

    async def put(self, spec: JobSpec, *, reply: bool = False) -> Job:
        """Put a job, and return it once the broker has confirmed it."""
        self.require_broker()
        return await drive(
            self._engine.put(spec, None, reply=reply), self._engine.settings.transport
        )

    async def delete(self, id: str) -> None:
        """Delete the jobs with an id, whatever their state."""
        self.require_broker()
        with suppress(NamespaceMissing):
            await self.client.delete(id)

    # Popping and settling

    async def pop(
        self, topics: Sequence[str], *, max: int, wait: float, caller_gone: asyncio.Event
    ) -> list[HeldJob]:
        """Reserve up to `max` jobs; wait for the first of them for at most `wait` seconds."""
        if self._stopping.is_set():
            raise ShuttingDown("this gateway hands out no more jobs")
        self.require_broker()
        popping = asyncio.create_task(
            self.client.pop(topics, max=max, wait=min(wait, self.settings.max_wait))
        )
        ends = [asyncio.create_task(event.wait()) for event in (caller_gone, self._stopping)]
        await asyncio.wait([popping, *ends], return_when=asyncio.FIRST_COMPLETED)
        for task in (popping, *ends):
            task.cancel()
        try:
            return [self.held.hold(job) for job in await popping]
        except (asyncio.CancelledError, NamespaceMissing):
            return []

    def topic_of(self, lease: str) -> str:
        """Return the topic of a lease's job; raise LeaseLost if the lease is unknown."""
        return self.held.job(lease).topic

    async def finish(self, lease: str) -> None:
        """Finish the job of a lease."""
        await self.held.job(lease).finish()
        self.held.forget(lease)

    async def release(self, lease: str, delay: float | timedelta | None) -> None:
        """Release the job of a lease."""
        await self.held.job(lease).release(delay)
        self.held.forget(lease)

    async def touch(self, lease: str) -> float:
        """Restart the ttr of a lease's job; return the seconds that are left."""
        job = self.held.job(lease)
        await job.touch()
        return job.time_left

    async def bury(self, lease: str, reason: str) -> None:
        """Bury the job of a lease."""
        await self.held.job(lease).bury(reason)
        self.held.forget(lease)

    async def finish_id(self, id: str) -> None:
        """Finish the jobs with an id that are held; if there are none, delete by id."""
        leases = self.held.with_id(id)
        for lease in leases:
            with suppress(LeaseLost):
                await self.finish(lease)
        if not leases:
            await self.delete(id)

    async def _connect(self) -> None:
        """Connect, and begin to read the log of deletes; try again until it works."""
        for attempt in (self.client.connect, partial(self._engine_log)):
            while True:
                try:
                    await attempt()
                    break
                except NamespaceMissing:
                    break
                except RabbitDelayError as error:
                    self._connect_error = error
                    logger.debug("gateway: cannot connect yet (%s)", error)
                    await asyncio.sleep(RECONNECT_SECONDS)

    async def _engine_log(self) -> None:
        await self.client._log_reader()  # noqa: SLF001 - of this client
