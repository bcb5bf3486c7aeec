"""Failures: what went wrong with an attempt, as it goes into headers that people read."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Self

MAX_TEXT = 1_000
"""How much of an error's text is kept: headers are shown whole in the management UI."""
MAX_KIND = 100
MAX_TRACEBACK = 8_000
"""Upper bound of a kept traceback, in characters."""
TIMEOUT = "Timeout"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed."""

    kind: str
    """The type of the error; `Timeout` when the ttr passed."""
    text: str
    traceback: str | None = None
    """Where the error was raised, as Python prints it; kept with a buried job only."""

    @classmethod
    def of(cls, error: BaseException, traceback: str | None = None) -> Self:
        """What an exception says of itself."""
        return cls(bounded(type(error).__name__, MAX_KIND), bounded(_text(error)), traceback)

    @property
    def is_timeout(self) -> bool:
        """Whether the attempt was cut off, and may have had any effect."""
        return self.kind == TIMEOUT

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind


def timeout(ttr: timedelta) -> Failure:
    """The failure of an attempt that was not settled within its ttr."""
    return Failure(TIMEOUT, f"not settled within its ttr of {ttr.total_seconds():g} s")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001 - a handler's error may be of any make
        return f"(its text cannot be read: {type(another).__name__})"


def bounded(text: str, most: int = MAX_TEXT) -> str:
    """The beginning of a text, as what AMQP and people can take."""
    clean = _clean(text)
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"


def bounded_traceback(text: str, most: int = MAX_TRACEBACK) -> str:
    """Return a traceback of at most so many characters: the end, which names the error, is kept."""
    clean = _clean(text).rstrip("\n")
    return clean if len(clean) <= most else f"…{clean[1 - most :]}"


def _clean(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\x00", "�")
