"""A reserved job: its properties, and the operations on it that need no waiting."""

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
from rabbitdelay.engine.transport_source import Waiter
from rabbitdelay.engine.work.tracebacks import traceback_of
from rabbitdelay.errors import InvalidJob, RabbitDelayError
from rabbitdelay.models import Job

Model = TypeVar("Model")


class JobSettlement(Protocol):
    """The settlement of a reserved job, in this process or, for a child process, in its parent."""

    def finish(self, lease: Lease) -> None:
        """Finish the job."""

    @property
    def waiter(self) -> Waiter | None:
        """Waits for futures, if the transport is not a driver's."""

    def touch(self, lease: Lease) -> float:
        """Restart the job's ttr; return the new deadline."""

    def release(
        self, lease: Lease, delay_ms: int | None = None, why: Failure | None = None
    ) -> Future[Any]:
        """Release the job."""

    def hand_back_unchanged(self, lease: Lease) -> Future[Any]:
        """Return the job to the broker with the same attempt."""

    def bury(self, lease: Lease, reason: str, why: Failure | None = None) -> Future[Any]:
        """Bury the job."""

    def time_left(self, lease: Lease) -> float:
        """Return the remaining ttr in seconds."""

    def is_deleted(self, lease: Lease) -> bool:
        """Whether the job was deleted after it was handed out."""

    def on_end(self, lease: Lease, callback: Callable[[], None]) -> None:
        """Register a callback for the loss of the lease."""


@dataclass(frozen=True, slots=True, eq=False)
class LeasedJob(Job):
    """A job that this process has reserved, for at most its ttr."""

    _lease: Lease = field(kw_only=True, repr=False)
    _settlement: JobSettlement = field(kw_only=True, repr=False)
    _client: object = field(kw_only=True, repr=False, default=None)
    """The client that popped the job. The reference keeps it open, because closing it would return
    the job to the broker."""

    @property
    def lateness(self) -> float:
        """Time from due time to delivery, in seconds; 0 if the clocks disagree."""
        return self._lease.lateness_ms / 1000

    @property
    def time_left(self) -> float:
        """Remaining ttr in seconds; 0 if the job is not reserved any more."""
        return self._settlement.time_left(self._lease)

    @property
    def deleted(self) -> bool:
        """Whether the job was deleted, replaced or purged after it was handed out.

        This does not undo the handler's effects; the job is not handed out again.
        """
        return self._settlement.is_deleted(self._lease)

    @property
    def redeliveries(self) -> int:
        """Number of earlier deliveries, as counted by the broker."""
        return self._lease.redeliveries

    @property
    def message_headers(self) -> dict[str, Any]:
        """All message headers: the publisher's, rabbitdelay's (`rd-`) and the broker's (`x-`)."""
        return dict(self._lease.message.headers)

    def as_model(self, model: type[Model]) -> Model:
        """Return the body as a pydantic model, or as any type that pydantic validates.

        Raises:
            NotAJob: The body is invalid. In a worker's handler this buries the job.
        """
        return body.read(self, TypeAdapter(model))

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Register a callback for the loss of the job: its ttr or its connection has ended.

        The callback may run on another thread and must not wait. It is called at once if the job is
        not reserved any more.
        """
        self._settlement.on_end(self._lease, callback)

    def as_put(self) -> Job:
        """Return the job without its topic's defaults, as it was put."""
        return self._lease.job

    # Flows for both front ends

    def _release(self, delay: float | timedelta | None) -> Flow[None]:
        delay_ms = None
        if delay is not None:
            delay_ms = validation.check_delay_ms(delay)
        yield Wait(self._settlement.release(self._lease, delay_ms))

    def _hand_back(self) -> Flow[None]:
        yield Wait(self._settlement.hand_back_unchanged(self._lease))

    def _bury(self, reason: str) -> Flow[None]:
        if not isinstance(reason, str):
            raise InvalidJob(f"reason must be text, not {type(reason).__name__}")
        yield Wait(self._settlement.bury(self._lease, reason))

    def _leave(self, error: BaseException | None) -> Flow[None]:
        """Finish the job at the end of its `with` block; release it if the block raised."""
        if self._lease.ended_by in _ALREADY_SETTLED:
            return
        if error is None:
            self._settlement.finish(self._lease)
            return
        failure = Failure.of(error, traceback_of(error))
        try:
            yield Wait(self._settlement.release(self._lease, None, failure))
        except RabbitDelayError:
            return  # the block's own error is raised instead


_ALREADY_SETTLED = (Event.FINISH, Event.RELEASE, Event.HAND_BACK, Event.BURY, Event.DELETE)
_fields = attrgetter(*(name for name in Job.__slots__))
_MAX_ATTEMPTS = list(Job.__slots__).index("max_attempts")
AnyLeasedJob = TypeVar("AnyLeasedJob", bound=LeasedJob)


def leased_job(
    kind: type[AnyLeasedJob], lease: Lease, settlement: JobSettlement, client: object = None
) -> AnyLeasedJob:
    """Return the job of a lease, with the defaults of its topic."""
    values = list(_fields(lease.job))
    if values[_MAX_ATTEMPTS] is None:
        values[_MAX_ATTEMPTS] = lease.default_max_attempts
    return kind(*values, _lease=lease, _settlement=settlement, _client=client)
