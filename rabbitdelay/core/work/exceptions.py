"""Verdicts: what an exception that a handler raised makes of its job, in one table."""

from dataclasses import dataclass

from rabbitdelay import duration
from rabbitdelay.core.settle.failure import Failure
from rabbitdelay.errors import Bury, InvalidJob, NotAJob, Retry


@dataclass(frozen=True, slots=True)
class TryAgain:
    """It is given back, after a delay or its topic's backoff."""

    delay_ms: int | None
    failure: Failure


@dataclass(frozen=True, slots=True)
class GiveUpNow:
    """It is buried at once."""

    reason: str
    failure: Failure | None


Verdict = TryAgain | GiveUpNow


def of(error: BaseException) -> Verdict:
    """Return what follows from an exception; whatever is not ours is tried again."""
    match error:
        case Bury():
            return GiveUpNow(str(error), None)
        case NotAJob():  # no attempt will make its body any better
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
