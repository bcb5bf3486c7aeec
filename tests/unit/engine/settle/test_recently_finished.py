"""Recently finished attempts: which are remembered, and for how long."""

from rabbitdelay.core.consume.leases import Identity
from rabbitdelay.engine.settle.recently_finished import MOST, RecentlyFinished


def identity(number: int = 0, *, token: str = "t", attempt: int = 1) -> Identity:  # noqa: S107 - no password
    return ("t", f"job-{number}", token, attempt)


def test_exactly_the_added_attempt_is_remembered() -> None:
    remembered = RecentlyFinished()
    remembered.add(identity())
    assert identity() in remembered
    assert identity(attempt=2) not in remembered
    assert identity(token="another") not in remembered  # noqa: S106 - not a password
    assert identity(1) not in remembered


def test_a_job_without_a_token_is_not_remembered() -> None:
    remembered = RecentlyFinished()
    remembered.add(identity(token=""))
    assert identity(token="") not in remembered


def test_the_oldest_is_forgotten_first() -> None:
    remembered = RecentlyFinished()
    for number in range(MOST):
        remembered.add(identity(number))
    assert identity(0) in remembered
    remembered.add(identity(MOST))
    assert identity(0) not in remembered
    assert identity(1) in remembered
    assert identity(MOST) in remembered
