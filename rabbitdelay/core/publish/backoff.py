"""Backoff: how long to wait before the next try, as a pure function."""


def seconds(attempt: int, random: float, *, first: float = 0.1, longest: float = 5.0) -> float:
    """Return the pause after failed attempt number `attempt` (from 0).

    It doubles each time up to `longest`; `random` in [0, 1) takes off up to a half, so that
    clients that lost the same broker do not come back in the same instant.
    """
    return min(longest, first * 2.0 ** min(attempt, 30)) * (1 - random / 2)
