"""The verdict on a job after its handler raised an exception, as one table."""

from dataclasses import dataclass

from rabbitdelay import duration
from rabbitdelay.core.settle.failure import Failure
from rabbitdelay.errors import Bury, InvalidJob, NotAJob, Retry


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Retry the job, after a delay or its topic's backoff."""

    delay_ms: int | None
    failure: Failure


@dataclass(frozen=True, slots=True)
class GiveUpNow:
    """Bury the job at once."""

    reason: str
    failure: Failure | None


Verdict = TryAgain | GiveUpNow


def of(error: BaseException) -> Verdict:
    """Return the verdict on an exception; any exception that is not ours is retried."""
    match error:
        case Bury():
            return GiveUpNow(str(error), None)
        case NotAJob():  # a retry would not make the body valid
            return GiveUpNow(str(error), None)
        case Retry(delay=delay) if delay is not None:
            return _after(delay, error)
        case _:
            return TryAgain(None, Failure.of(error))


def _after(delay: object, error: Retry) -> Verdict:
    try:
        delay_ms = duration.milliseconds(delay, what="delay")  # type: ignore[arg-type]  # it checks
    except InvalidJob as wrong:
        return TryAgain(None, Failure.of(wrong))
    return TryAgain(max(0, delay_ms), Failure.of(error))
