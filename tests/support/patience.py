"""Waiting for a condition with a deadline, which tests use instead of sleeping.

A bound that only guards against a hang goes through `patience`, so that one factor scales all of
them: RABBITDELAY_TEST_TIMEOUT_FACTOR, 3 by default. Set it higher on a machine that is slower or
busier still. A bound that the product promises is not scaled, and its test names the promise.
"""

import os
import time
from collections.abc import Callable

FACTOR = float(os.environ.get("RABBITDELAY_TEST_TIMEOUT_FACTOR", "3"))


def patience(seconds: float) -> float:
    """Return the seconds multiplied by the factor for slow machines."""
    return seconds * FACTOR


def wait_until(
    condition: Callable[[], object], *, seconds: float = 10.0, what: str | Callable[[], str] = ""
) -> None:
    """Return when the condition holds; fail if it does not within `patience(seconds)`.

    `what` describes the condition. A function is called at the end of the wait, to say what held.
    """
    deadline = time.monotonic() + patience(seconds)
    while not condition():
        assert time.monotonic() < deadline, _timed_out(seconds, what or str(condition))
        time.sleep(0.01)


def _timed_out(seconds: float, what: str | Callable[[], str]) -> str:
    return f"not within {patience(seconds):g} s: {what if isinstance(what, str) else what()}"
