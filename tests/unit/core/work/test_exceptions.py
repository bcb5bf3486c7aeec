"""The meaning of each exception for its job."""

from datetime import timedelta

import pytest

from rabbitdelay.core.settle.failure import Failure
from rabbitdelay.core.work import exceptions
from rabbitdelay.core.work.exceptions import GiveUpNow, TryAgain, Verdict
from rabbitdelay.errors import Bury, LeaseLost, NotAJob, Retry


class OurBury(Bury):
    """A user's subclass of Bury."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Bury("paid"), GiveUpNow("paid", None)),
        (OurBury("paid"), GiveUpNow("paid", None)),
        (NotAJob("no order"), GiveUpNow("no order", None)),
        (Retry("later"), TryAgain(None, Failure("Retry", "later"))),
        (Retry("later", delay=0), TryAgain(0, Failure("Retry", "later"))),
        (Retry("later", delay=1.5), TryAgain(1_500, Failure("Retry", "later"))),
        (Retry(delay=timedelta(minutes=5)), TryAgain(300_000, Failure("Retry", ""))),
        (Retry("now", delay=-5), TryAgain(0, Failure("Retry", "now"))),
        (ValueError("bad"), TryAgain(None, Failure("ValueError", "bad"))),
        (LeaseLost("gone"), TryAgain(None, Failure("LeaseLost", "gone"))),
        (SystemExit(1), TryAgain(None, Failure("SystemExit", "1"))),
        (KeyboardInterrupt(), TryAgain(None, Failure("KeyboardInterrupt", ""))),
    ],
)
def test_every_exception_has_a_verdict(error: BaseException, expected: Verdict) -> None:
    assert exceptions.of(error) == expected


@pytest.mark.parametrize("delay", ["5m", True, float("nan"), float("inf"), 1e308, object()])
def test_an_invalid_delay_is_a_failure_that_says_so(delay: object) -> None:
    """The handler's thread must survive it."""
    found = exceptions.of(Retry("later", delay=delay))  # type: ignore[arg-type]  # on purpose
    assert isinstance(found, TryAgain)
    assert found.delay_ms is None
    assert found.failure.text != "later"


def test_an_exception_whose_str_raises_is_retried() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    found = exceptions.of(MuteError())
    assert found == TryAgain(None, Failure("MuteError", "(its text cannot be read: RuntimeError)"))
