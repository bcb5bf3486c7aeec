"""The batch of one put_many: counts its confirmed jobs and collects the errors."""

from collections.abc import Callable

from rabbitdelay.engine.flow import Bell, Flow, until
from rabbitdelay.errors import PutManyFailed
from rabbitdelay.models import Job

OnConfirmed = Callable[[Job], None]
OnPositionConfirmed = Callable[[int, Job], None]
"""Called with the position of a job in the input, and the job."""


class Batch:
    """Counts results on the transport's thread while the caller waits on another.

    Only failures are kept. put_many stops at the first one, so there are never more failures than
    the publish window has room for, however many jobs the batch has.
    """

    def __init__(self, on_confirmed: OnPositionConfirmed | None) -> None:
        self._on_confirmed = on_confirmed
        self._all_resolved = Bell()
        self._all_taken = False
        self._taken = 0
        self._confirmed = 0
        self._caller_error: Exception | None = None
        self._failures: dict[int, Exception] = {}

    @property
    def failed(self) -> bool:
        """Whether put_many must stop taking jobs."""
        return bool(self._failures) or self._caller_error is not None

    def take(self) -> int:
        """Count the next job, and return its position."""
        self._taken += 1
        return self._taken - 1

    def refuse(self, position: int, error: Exception) -> None:
        """Record the error of a job that was never sent."""
        self._failures[position] = error

    def resolved(self, position: int, job: Job, error: Exception | None) -> None:
        """Record the result of a job that was sent; on the transport's thread."""
        if error is not None:
            self._failures[position] = error
        else:
            self._confirmed += 1
            self._tell(position, job)
        # Count before checking: a caller that starts to wait in between sees the count.
        if self._all_taken and self._is_all_resolved():
            self._all_resolved.ring()

    def _tell(self, position: int, job: Job) -> None:
        """Call `on_confirmed`, whose errors must not end the transport's thread."""
        if self._on_confirmed is None or self._caller_error is not None:
            return
        try:
            self._on_confirmed(position, job)
        except Exception as error:  # noqa: BLE001 - raised again by `wait`
            self._caller_error = error

    def _is_all_resolved(self) -> bool:
        return self._confirmed + len(self._failures) == self._taken

    def wait(self) -> Flow[int]:
        """Wait for all results; return the number of confirmed jobs, or raise PutManyFailed."""
        self._all_taken = True
        yield from until(self._all_resolved, self._is_all_resolved, None)
        if self._caller_error is not None:
            raise self._caller_error
        if not self._failures:
            return self._confirmed
        position = min(self._failures)
        raise PutManyFailed(
            f"put_many stopped at position {position}: {self._failures[position]} "
            f"({self._confirmed} of the {self._taken} jobs taken are confirmed)",
            confirmed=self._confirmed,
            unconfirmed=sorted(self._failures),
            taken=self._taken,
        ) from self._failures[position]
