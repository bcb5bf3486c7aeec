"""The history of a run: the events of every process, as lines of JSON.

Each process appends to a file of its own, one `write` per event, so that a process that is killed
loses at most the event it had not written. All times are of CLOCK_MONOTONIC, in seconds: that is
one clock for all processes of a machine, and no fault steps it.
"""

import json
import os
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self


class Kind(StrEnum):
    """The kinds of events."""

    PUT = "put"
    """A put was called; `delay` is the delay it asked for."""
    CONFIRMED = "confirmed"
    """That put returned."""
    UNKNOWN = "unknown"
    """That put raised an error, so the job may or may not arrive."""
    DELETE = "delete"
    """A delete was called."""
    DELETED = "deleted"
    """That delete returned."""
    DELIVERED = "delivered"
    """A handler began this attempt of the job; `delay` is the time since its hand-out."""
    RETRIED = "retried"
    """That handler asked for another attempt after `delay`."""
    HUNG = "hung"
    """That handler began to wait longer than the TTR of the job."""
    FINISHED = "finished"
    """That handler returned."""
    PARKED = "parked"
    """The job was found in a buried queue or in `unrouted` after the run."""
    FAULT = "fault"
    """A fault began; `detail` describes it."""
    HEALED = "healed"
    """That fault ended."""
    EFFECT = "effect"
    """A fault was seen to have its intended effect; `detail` begins with its name."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a history."""

    at: float
    kind: Kind
    job: str = ""
    attempt: int = 0
    delay: float = 0.0
    detail: str = ""
    by: str = ""

    def encode(self) -> bytes:
        """Return the line, without the fields that have their default."""
        fields = {name: value for name, value in asdict(self).items() if value or name == "at"}
        return json.dumps(fields).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """Return the event that a line describes."""
        fields = json.loads(line)
        return cls(**{**fields, "kind": Kind(fields["kind"])})


class HistoryWriter:
    """Appends the events of one process to a file; any thread may write."""

    def __init__(self, folder: Path, by: str) -> None:
        self._by = by
        path = folder / f"{by}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(
        self, kind: Kind, job: str = "", *, attempt: int = 0, delay: float = 0.0, detail: str = ""
    ) -> float:
        """Append an event of this moment, and return the moment."""
        now = time.monotonic()
        os.write(self._file, Event(now, kind, job, attempt, delay, detail, self._by).encode())
        return now


class HistoryReader:
    """Reads the files of all processes while they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}

    def read(self) -> list[Event]:
        """Return the events that were completed since the last call, ordered by file."""
        paths = sorted(self._folder.glob("*.jsonl"))
        return [event for path in paths for event in self._read_file(path)]

    def _read_file(self, path: Path) -> list[Event]:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            # A killed process cannot leave half a line, but one may be half written just now.
            whole, _, _ = file.read().rpartition(b"\n")
        if not whole:
            return []
        self._offsets[path] = self._offsets.get(path, 0) + len(whole) + 1
        return [Event.decode(line) for line in whole.split(b"\n")]
