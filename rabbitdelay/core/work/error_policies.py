"""Retry policies by the type of the exception, on top of the retry policy of a topic."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from rabbitdelay.core.work.retry import Backoff, Fate, GiveUp, RetryPolicy
from rabbitdelay.errors import (
    Bury,
    HandlerRaised,
    HandlerVerdict,
    InvalidConfiguration,
    NotAJob,
    TimedOut,
    type_name,
)
from rabbitdelay.models import Job

ErrorPolicy = RetryPolicy | Backoff | type[Bury]
"""The handling of a type of exception: a policy, a backoff in the topic's policy, or `Bury`."""
_MAIN_OF_CHILD = "__mp_main__"
"""Name that a spawned process gives to its parent's `__main__` module."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The retry policy of a topic, and those for single types of exceptions."""

    default: RetryPolicy
    by_type: Mapping[type[BaseException], RetryPolicy | None] = field(default_factory=dict)
    """None for a type whose jobs are buried at once."""

    @classmethod
    def of(
        cls, default: RetryPolicy, given: Mapping[type[BaseException], ErrorPolicy] | None
    ) -> Self:
        """Check the policies given to a handler; raise InvalidConfiguration if invalid."""
        if not isinstance(given, Mapping | None):
            raise InvalidConfiguration(
                f"policies must be a dict of exception types to policies, not {given!r}"
            )
        checked = {_check_type(kind): _policy(one, default) for kind, one in (given or {}).items()}
        return cls(default, checked)

    def max_attempts(self, error: BaseException | None = None) -> int:
        """Return the maximum attempts, after this error, of a job that does not set its own."""
        kind = None if error is None else self._nearest(error)
        policy = None if kind is None else self.by_type[kind]
        return (policy or self.default).max_attempts

    def after(
        self,
        job: Job,
        *,
        random: float,
        error: BaseException | None = None,
        delay_ms: int | None = None,
    ) -> Fate:
        """Return the fate of a job whose attempt failed with this error, or TimedOut at its ttr."""
        kind = None if error is None else self._nearest(error)
        policy = self.default if kind is None else self.by_type[kind]
        if policy is None:
            return GiveUp(f"{_shown_type(error)} is not retried")
        # A policy for TimedOut itself applies to timeouts only, so its backoff is meant for them.
        timed_out = isinstance(error, TimedOut) and not (kind and issubclass(kind, TimedOut))
        return policy.after(job, random=random, timed_out=timed_out, delay_ms=delay_ms)

    def _nearest(self, error: BaseException) -> type[BaseException] | None:
        """Return the nearest class of an error that has a policy of its own."""
        if isinstance(error, HandlerRaised) and error.kinds:
            known = {type_name(kind): kind for kind in self.by_type}
            names = (name.replace(_MAIN_OF_CHILD, "__main__", 1) for name in error.kinds)
            return next((known[name] for name in names if name in known), None)
        return next((kind for kind in type(error).__mro__ if kind in self.by_type), None)


def _check_type(kind: type[BaseException]) -> type[BaseException]:
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise InvalidConfiguration(f"a key of policies must be an exception type, not {kind!r}")
    if issubclass(kind, (HandlerVerdict, NotAJob)):
        raise InvalidConfiguration(
            f"policies must not contain {kind.__name__}, because it decides the outcome of its job"
        )
    return kind


def _policy(given: ErrorPolicy, default: RetryPolicy) -> RetryPolicy | None:
    if isinstance(given, RetryPolicy):
        return given
    if isinstance(given, type) and issubclass(given, Bury):
        return None
    if given is None or isinstance(given, type):
        raise InvalidConfiguration(
            f"a policy must be a RetryPolicy, a backoff such as [1, 5], or Bury, not {given!r}"
        )
    return replace(default, backoff=given)


def _shown_type(error: BaseException | None) -> str:
    kinds = error.kinds if isinstance(error, HandlerRaised) else ()
    return kinds[0].rpartition(".")[2] if kinds else type(error).__name__
