"""A held job: one that this process holds, and all that can be seen of it without waiting."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.jobs import body, validation
from rabbitdelay.core.jobs.states import Event
from rabbitdelay.core.settle.failure import Failure
from rabbitdelay.engine.flow import Flow, Wait
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.work.tracebacks import traceback_of
from rabbitdelay.errors import InvalidJob, RabbitDelayError
from rabbitdelay.models import Job

Model = TypeVar("Model")


class Holder(Protocol):
    """Who settles a reserved job: the consumer in this process, or in the parent of it."""

    def finish(self, lease: Lease) -> None:
        """End it for good."""

    def touch(self, lease: Lease) -> float:
        """Let its ttr begin again."""

    def release(
        self, lease: Lease, delay_ms: int | None = None, why: Failure | None = None
    ) -> Future[Any]:
        """Give it back."""

    def bury(self, lease: Lease, reason: str, why: Failure | None = None) -> Future[Any]:
        """Give it up."""

    def time_left(self, lease: Lease) -> float:
        """How many seconds it may still be held."""

    def is_deleted(self, lease: Lease) -> bool:
        """Whether it was deleted while it is held."""

    def on_end(self, lease: Lease, callback: Callable[[], None]) -> None:
        """Call it when the job is taken away."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldJob(Job):
    """A job that is held by this process, for at most its ttr."""

    _lease: Lease = field(kw_only=True, repr=False)
    _holder: Holder = field(kw_only=True, repr=False)
    _client: object = field(kw_only=True, repr=False, default=None)
    """Who popped it: with its client a job would go back to the broker."""

    @property
    def lateness(self) -> float:
        """How many seconds after its due time it was received; never negative."""
        return self._lease.lateness_ms / 1000

    @property
    def time_left(self) -> float:
        """How many seconds it may still be held; 0 when it is not held any more."""
        return self._holder.time_left(self._lease)

    @property
    def deleted(self) -> bool:
        """Whether it was deleted, replaced or purged since it was handed out.

        What it has done it has done; it is not handed out again.
        """
        return self._holder.is_deleted(self._lease)

    @property
    def redeliveries(self) -> int:
        """How often the broker handed it out before because its consumer died."""
        return self._lease.redeliveries

    @property
    def message_headers(self) -> dict[str, Any]:
        """All headers of its message: its putter's, ours (`rd-`) and the broker's (`x-`)."""
        return dict(self._lease.message.headers)

    def as_model(self, model: type[Model]) -> Model:
        """Return the body as a pydantic model, or any type that pydantic validates.

        Raises:
            NotAJob: The body is not like that. In a worker's handler this buries the job.
        """
        return body.read(self, TypeAdapter(model))

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call this when the job is taken away: its ttr has passed, or its connection is lost.

        It may be called on another thread and must not wait; at once when the job is not held.
        """
        self._holder.on_end(self._lease, callback)

    def as_put(self) -> Job:
        """Return the job without its topic's defaults: as its putter asked for it."""
        return self._lease.job

    # What both fronts do, as flows

    def _release(self, delay: float | timedelta | None) -> Flow[None]:
        delay_ms = None
        if delay is not None:
            delay_ms = validation.check_delay_ms(delay)
        yield Wait(self._holder.release(self._lease, delay_ms))

    def _bury(self, reason: str) -> Flow[None]:
        if not isinstance(reason, str):
            raise InvalidJob(f"reason must be text, not {type(reason).__name__}")
        yield Wait(self._holder.bury(self._lease, reason))

    def _leave(self, error: BaseException | None) -> Flow[None]:
        """The end of the block in which it was held: finish it, or release it."""
        if self._lease.ended_by in _SETTLED_BY_HOLDER:
            return
        if error is None:
            self._holder.finish(self._lease)
            return
        failure = Failure.of(error, traceback_of(error))
        try:
            yield Wait(self._holder.release(self._lease, None, failure))
        except RabbitDelayError:
            return  # what the block raised matters more


_SETTLED_BY_HOLDER = (Event.FINISH, Event.RELEASE, Event.BURY, Event.DELETE)
_fields = attrgetter(*(name for name in Job.__slots__))
_MAX_ATTEMPTS = list(Job.__slots__).index("max_attempts")
Held = TypeVar("Held", bound=HeldJob)


def held_job(kind: type[Held], lease: Lease, holder: Holder, client: object = None) -> Held:
    """Return the job of a lease, as its holder sees it."""
    values = list(_fields(lease.job))
    if values[_MAX_ATTEMPTS] is None:
        values[_MAX_ATTEMPTS] = lease.default_max_attempts
    return kind(*values, _lease=lease, _holder=holder, _client=client)
