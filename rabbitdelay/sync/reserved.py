"""A reserved job: one that this process holds, and what its holder may do with it."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from operator import attrgetter
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from pydantic import TypeAdapter

from rabbitdelay import duration
from rabbitdelay.core import body, ladder
from rabbitdelay.core.failure import Failure
from rabbitdelay.core.lease import Lease
from rabbitdelay.core.life import Event
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
class ReservedJob(Job):
    """A job that is held by this process, for at most its ttr.

    Settle it with finish, release or bury; as a context manager it is finished at the end of the
    block, and released when the block raises. What is not settled by its ttr is given back.
    Every one of these raises LeaseLost when the job is no longer held.
    """

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
    def headers(self) -> dict[str, Any]:
        """The headers of its message, those of other people too."""
        return dict(self._lease.message.headers)

    def as_model(self, model: type[Model]) -> Model:
        """Return the body as a pydantic model, or any type that pydantic validates.

        Raises:
            NotAJob: The body is not like that. In a worker's handler this buries the job.
        """
        return body.read(self, TypeAdapter(model))

    def finish(self) -> None:
        """End it for good."""
        self._holder.finish(self._lease)

    def release(self, delay: float | timedelta | None = None) -> None:
        """Give it back with attempt + 1, after a delay or its topic's backoff.

        It returns when the broker has it. A job whose attempts are used up is buried instead.
        """
        delay_ms = None if delay is None else _delay_ms(delay)
        self._holder.release(self._lease, delay_ms).result()

    def touch(self) -> None:
        """Let its ttr begin again."""
        self._holder.touch(self._lease)

    def bury(self, reason: str) -> None:
        """Give it up, and keep it for a person; it returns when the broker has it."""
        if not isinstance(reason, str):
            raise InvalidJob(f"reason must be text, not {type(reason).__name__}")
        self._holder.bury(self._lease, reason).result()

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call this when the job is taken away: its ttr has passed, or its connection is lost.

        It is called on another thread and must not wait; at once when the job is not held.
        """
        self._holder.on_end(self._lease, callback)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._lease.ended_by in _SETTLED_BY_HOLDER:
            return
        if error is None:
            self.finish()
            return
        with suppress(RabbitDelayError):  # what the block raised matters more
            self._holder.release(self._lease, None, Failure.of(error)).result()


_SETTLED_BY_HOLDER = (Event.FINISH, Event.RELEASE, Event.BURY, Event.DELETE)
_fields = attrgetter(*(name for name in Job.__slots__))


def _delay_ms(delay: float | timedelta) -> int:
    return ladder.check(duration.milliseconds(delay, what="delay"))


def reserved_job(lease: Lease, holder: Holder, client: object = None) -> ReservedJob:
    """Return the job of a lease, as its holder sees it."""
    return ReservedJob(*_fields(lease.job), _lease=lease, _holder=holder, _client=client)
