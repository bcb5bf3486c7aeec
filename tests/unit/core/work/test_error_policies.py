"""Policies for types of exceptions: which one applies, and what it makes of a failed attempt."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rabbitdelay.core.work.error_policies import Policies
from rabbitdelay.core.work.retry import Again, Fate, GiveUp, RetryPolicy
from rabbitdelay.errors import (
    Bury,
    HandlerRaised,
    InvalidConfiguration,
    NotAJob,
    Retry,
    TimedOut,
    type_name,
)
from rabbitdelay.models import Job

JOB = Job("mail", "mail-1", "token", 0, 0, 60_000, b"")
DEFAULT = RetryPolicy(10, [100])


class BankBusy(ConnectionError):
    """An error of a handler's own, below two that Python has."""


def after(policies: Policies, error: BaseException | None, **job: Any) -> Fate:  # noqa: ANN401
    return policies.after(replace(JOB, **job), random=0.0, error=error)


@pytest.mark.parametrize(
    ("error", "fate"),
    [
        (BankBusy(), Again(1_000)),
        (ConnectionRefusedError(), Again(7_000)),
        (OSError(), Again(7_000)),
        (ValueError(), GiveUp("ValueError is not retried")),
        (UnicodeDecodeError("utf-8", b"", 0, 1, ""), GiveUp("UnicodeDecodeError is not retried")),
        (KeyError(), Again(100_000)),
        (SystemExit(), Again(100_000)),
        (None, Again(100_000)),
    ],
)
def test_the_nearest_class_of_an_error_decides(error: BaseException | None, fate: Fate) -> None:
    policies = Policies.of(DEFAULT, {OSError: [7], BankBusy: [1, 5], ValueError: Bury})
    assert after(policies, error) == fate


def test_a_backoff_takes_the_rest_from_the_topics_policy() -> None:
    policies = Policies.of(RetryPolicy(3, backoff_max=4), {BankBusy: timedelta(seconds=2)})
    assert after(policies, BankBusy()) == Again(2_000)
    assert after(policies, BankBusy(), attempt=2) == Again(4_000)
    assert after(policies, BankBusy(), attempt=3) == GiveUp("attempt 3 of 3 failed")


def test_a_whole_policy_has_its_own_attempts_and_those_of_the_job_go_first() -> None:
    policies = Policies.of(DEFAULT, {BankBusy: RetryPolicy(2, [1])})
    assert after(policies, BankBusy(), attempt=2) == GiveUp("attempt 2 of 2 failed")
    assert after(policies, BankBusy(), attempt=2, max_attempts=3) == Again(1_000)
    assert (policies.max_attempts(BankBusy()), policies.max_attempts(KeyError())) == (2, 10)


def test_a_wait_that_was_asked_for_goes_before_every_backoff() -> None:
    policies = Policies.of(DEFAULT, {BankBusy: [1]})
    assert policies.after(JOB, random=0.0, error=BankBusy(), delay_ms=5) == Again(5)


@pytest.mark.parametrize(
    ("given", "fate"),
    [
        ({}, Again(3_000)),
        ({TimedOut: [9]}, Again(9_000)),
        ({TimedOut: Bury}, GiveUp("TimedOut is not retried")),
        ({Exception: [9]}, Again(3_000)),
        ({ValueError: [9]}, Again(3_000)),
    ],
)
def test_a_timeout_waits_the_timeout_delay_unless_it_has_a_policy_of_its_own(
    given: dict[type[BaseException], Any], fate: Fate
) -> None:
    policies = Policies.of(RetryPolicy(10, [100], timeout_delay=3), given)
    assert after(policies, TimedOut("ttr")) == fate


def test_an_error_that_could_not_leave_its_process_is_known_by_the_names_of_its_classes() -> None:
    policies = Policies.of(DEFAULT, {OSError: [7], BankBusy: Bury})
    kinds = [type_name(kind) for kind in BankBusy.__mro__]
    assert after(policies, HandlerRaised("x", kinds=kinds)) == GiveUp("BankBusy is not retried")
    assert after(policies, HandlerRaised("x", kinds=kinds[1:])) == Again(7_000)
    assert after(policies, HandlerRaised("x", kinds=["m.Other"])) == Again(100_000)
    assert after(policies, HandlerRaised("x")) == Again(100_000)


def test_a_class_of_a_script_has_another_name_in_a_spawned_process() -> None:
    ours = type("Busy", (Exception,), {"__module__": "__main__"})
    policies = Policies.of(DEFAULT, {ours: Bury})
    raised = HandlerRaised("x", kinds=["__mp_main__.Busy", "builtins.Exception"])
    assert after(policies, raised) == GiveUp("Busy is not retried")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"ValueError": [1]}, "types of exceptions"),
        ({int: [1]}, "types of exceptions"),
        ({Retry: [1]}, "cannot name Retry"),
        ({Bury: [1]}, "cannot name Bury"),
        ({NotAJob: [1]}, "cannot name NotAJob"),
        ({ValueError: None}, "a policy must be"),
        ({ValueError: ValueError}, "a policy must be"),
        ({ValueError: "bury"}, "backoff must be"),
        ({ValueError: []}, "at least one wait"),
        ([ValueError], "must map"),
    ],
)
def test_wrong_policies_are_refused(given: Any, says: str) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidConfiguration, match=says):
        Policies.of(DEFAULT, given)
