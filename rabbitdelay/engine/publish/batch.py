"""A batch: what became of the many jobs of one put_many."""

from collections.abc import Callable

from rabbitdelay.engine.flow import Bell, Flow, until
from rabbitdelay.errors import PutManyFailed
from rabbitdelay.models import Job

OnConfirmed = Callable[[Job], None]


class Batch:
    """Counts on the transport's thread, for a caller who waits elsewhere.

    It keeps the failures alone: putting stops at the first, so there are never more of them than
    the window has room for, however many jobs there are.
    """

    def __init__(self, on_confirmed: OnConfirmed | None) -> None:
        self._on_confirmed = on_confirmed
        self._all_resolved = Bell()
        self._all_taken = False
        self._taken = 0
        self._confirmed = 0
        self._caller_error: Exception | None = None
        self._failures: dict[int, Exception] = {}

    @property
    def failed(self) -> bool:
        """Whether to stop taking more."""
        return bool(self._failures) or self._caller_error is not None

    def take(self) -> int:
        """Return the position of the next job."""
        self._taken += 1
        return self._taken - 1

    def refuse(self, position: int, error: Exception) -> None:
        """Note a job that never left."""
        self._failures[position] = error

    def resolved(self, position: int, job: Job, error: Exception | None) -> None:
        """Note what became of a job that was sent; on the transport's thread."""
        if error is not None:
            self._failures[position] = error
        else:
            self._confirmed += 1
            self._tell(job)
        # Counted first and looked at after: whoever begins to wait meanwhile sees the count.
        if self._all_taken and self._is_all_resolved():
            self._all_resolved.ring()

    def _tell(self, job: Job) -> None:
        """Tell the caller's function, whose errors must not end the thread."""
        if self._on_confirmed is None or self._caller_error is not None:
            return
        try:
            self._on_confirmed(job)
        except Exception as error:  # noqa: BLE001 - raised again by `wait`
            self._caller_error = error

    def _is_all_resolved(self) -> bool:
        return self._confirmed + len(self._failures) == self._taken

    def wait(self) -> Flow[int]:
        """Wait until everything is resolved; return how many, or raise PutManyFailed."""
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
