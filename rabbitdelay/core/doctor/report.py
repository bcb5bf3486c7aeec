"""The results of checks, and how they word lists, numbers and durations."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "problem", "unknown"]

_SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check, with its reason and, for a finding, how to fix it."""

    name: str
    status: Status
    reason: str
    fix: str = ""


def worst(checks: Iterable[Check]) -> Status:
    """Return the most severe status."""
    found = {check.status for check in checks}
    order: tuple[Status, ...] = ("problem", "warning", "unknown")
    return next((status for status in order if status in found), "ok")


def first_names(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    shown = ", ".join(names[:_SHOWN_NAMES])
    rest = len(names) - _SHOWN_NAMES
    return f"{shown} and {rest} more" if rest > 0 else shown


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or plural."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
