"""The reason why an attempt failed, as text of bounded length for headers that people read."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Self

MAX_TEXT = 1_000
"""Maximum characters of an error's text, because the management UI shows headers in full."""
MAX_KIND = 100
MAX_TRACEBACK = 8_000
"""Maximum characters of a traceback."""
TIMEOUT = "Timeout"


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why an attempt failed."""

    kind: str
    """Name of the error's type; `Timeout` if the ttr passed."""
    text: str
    traceback: str | None = None
    """The traceback as Python prints it; only kept with a buried job."""

    @classmethod
    def of(cls, error: BaseException, traceback: str | None = None) -> Self:
        """Return the failure that an exception describes."""
        return cls(bounded(type(error).__name__, MAX_KIND), bounded(_text(error)), traceback)

    @property
    def is_timeout(self) -> bool:
        """Whether the attempt was cut off, so that its effects are unknown."""
        return self.kind == TIMEOUT

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind


def timeout(ttr: timedelta) -> Failure:
    """Return the failure of an attempt that exceeded its ttr."""
    return Failure(TIMEOUT, f"not settled within its ttr of {ttr.total_seconds():g} s")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001 - the handler's own class may raise anything
        return f"(its text cannot be read: {type(another).__name__})"


def bounded(text: str, most: int = MAX_TEXT) -> str:
    """Return the beginning of a text, without characters that AMQP or a terminal cannot handle."""
    clean = _clean(text)
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"


def bounded_traceback(text: str, most: int = MAX_TRACEBACK) -> str:
    """Return the end of a traceback, which names the error."""
    clean = _clean(text).rstrip("\n")
    return clean if len(clean) <= most else f"…{clean[1 - most :]}"


def _clean(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\x00", "�")
