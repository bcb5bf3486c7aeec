"""Policies for types of exceptions: which one applies, and what follows a failed attempt."""

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
    """A user's exception with two built-in base classes."""


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
def test_the_nearest_class_of_an_error_applies(error: BaseException | None, fate: Fate) -> None:
    policies = Policies.of(DEFAULT, {OSError: [7], BankBusy: [1, 5], ValueError: Bury})
    assert after(policies, error) == fate


def test_a_backoff_inherits_the_rest_of_the_topic_s_policy() -> None:
    policies = Policies.of(RetryPolicy(3, backoff_max=4), {BankBusy: timedelta(seconds=2)})
    assert after(policies, BankBusy()) == Again(2_000)
    assert after(policies, BankBusy(), attempt=2) == Again(4_000)
    assert after(policies, BankBusy(), attempt=3) == GiveUp("attempt 3 of 3 failed")


def test_attempts_come_from_the_job_then_from_the_policy() -> None:
    policies = Policies.of(DEFAULT, {BankBusy: RetryPolicy(2, [1])})
    assert after(policies, BankBusy(), attempt=2) == GiveUp("attempt 2 of 2 failed")
    assert after(policies, BankBusy(), attempt=2, max_attempts=3) == Again(1_000)
    assert (policies.max_attempts(BankBusy()), policies.max_attempts(KeyError())) == (2, 10)


def test_a_requested_delay_takes_precedence_over_every_backoff() -> None:
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
def test_a_policy_for_timed_out_replaces_the_timeout_delay(
    given: dict[type[BaseException], Any], fate: Fate
) -> None:
    policies = Policies.of(RetryPolicy(10, [100], timeout_delay=3), given)
    assert after(policies, TimedOut("ttr")) == fate


def test_an_unpicklable_error_is_matched_by_class_names() -> None:
    policies = Policies.of(DEFAULT, {OSError: [7], BankBusy: Bury})
    kinds = [type_name(kind) for kind in BankBusy.__mro__]
    assert after(policies, HandlerRaised("x", kinds=kinds)) == GiveUp("BankBusy is not retried")
    assert after(policies, HandlerRaised("x", kinds=kinds[1:])) == Again(7_000)
    assert after(policies, HandlerRaised("x", kinds=["m.Other"])) == Again(100_000)
    assert after(policies, HandlerRaised("x")) == Again(100_000)


def test_a_class_of_main_is_matched_in_a_spawned_process() -> None:
    ours = type("Busy", (Exception,), {"__module__": "__main__"})
    policies = Policies.of(DEFAULT, {ours: Bury})
    raised = HandlerRaised("x", kinds=["__mp_main__.Busy", "builtins.Exception"])
    assert after(policies, raised) == GiveUp("Busy is not retried")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"ValueError": [1]}, "must be an exception type"),
        ({int: [1]}, "must be an exception type"),
        ({Retry: [1]}, "must not contain Retry"),
        ({Bury: [1]}, "must not contain Bury"),
        ({NotAJob: [1]}, "must not contain NotAJob"),
        ({ValueError: None}, "a policy must be"),
        ({ValueError: ValueError}, "a policy must be"),
        ({ValueError: "bury"}, "backoff must be"),
        ({ValueError: []}, "backoff must not be empty"),
        ([ValueError], "must be a dict"),
    ],
)
def test_invalid_policies_are_refused(given: Any, says: str) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidConfiguration, match=says):
        Policies.of(DEFAULT, given)
