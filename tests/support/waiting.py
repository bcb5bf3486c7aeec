"""Waiting for a condition with a deadline: what tests do instead of sleeping.

A bound that only guards against hanging goes through `patience`, so that one factor scales all of
them: RABBITDELAY_TEST_TIMEOUT_FACTOR, 3 by default. Set it higher on a machine that is slower or
busier still. A bound that is a promise of the product is not scaled: its test says where it stands.
"""

import os
import time
from collections.abc import Callable

FACTOR = float(os.environ.get("RABBITDELAY_TEST_TIMEOUT_FACTOR", "3"))


def patience(seconds: float) -> float:
    """Return how long to wait on this machine for something that takes far less elsewhere."""
    return seconds * FACTOR


def wait_until(condition: Callable[[], object], *, seconds: float = 10.0, what: str = "") -> None:
    """Return when the condition holds; fail when it does not within `patience(seconds)`."""
    deadline = time.monotonic() + patience(seconds)
    while not condition():
        in_vain = f"not within {patience(seconds):g} s: {what or condition}"
        assert time.monotonic() < deadline, in_vain
        time.sleep(0.01)
