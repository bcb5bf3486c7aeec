"""Waiting for a condition with a deadline: what tests do instead of sleeping."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], *, seconds: float = 10.0, what: str = "") -> None:
    """Return when the condition holds; fail when it does not within the time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        time.sleep(0.01)
