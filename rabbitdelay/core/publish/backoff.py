"""Exponential backoff with jitter, as a pure function."""


def seconds(attempt: int, random: float, *, first: float = 0.1, longest: float = 5.0) -> float:
    """Return the wait after failed attempt number `attempt`, which counts from 0.

    The wait doubles up to `longest`. `random` in [0, 1) subtracts up to half of it, so that clients
    that lost the same broker do not reconnect at the same instant.
    """
    return min(longest, first * 2.0 ** min(attempt, 30)) * (1 - random / 2)
