"""Read the jobs of a `jobs.jsonl` file lazily, one per line."""

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

from rabbitdelay.errors import InvalidJob, PutManyFailed
from rabbitdelay.models import JobLine, JobSpec


class JobLines:
    """An iterable of jobs that records the line of each job; empty lines are skipped."""

    def __init__(
        self,
        lines: Iterable[bytes],
        *,
        default_topic: str | None,
        on_line: Callable[[int], None],
    ) -> None:
        self._lines = lines
        self._default_topic = default_topic
        self._on_line = on_line
        self._empty: list[int] = []

    def __iter__(self) -> Iterator[JobSpec]:
        for number, line in enumerate(self._lines, start=1):
            self._on_line(len(line))
            if line.strip():
                yield self._read(line)
            else:
                self._empty.append(number)

    def line_of(self, position: int) -> int:
        """Return the line number of the job at this position."""
        line = position + 1
        for empty in self._empty:
            line += empty <= line
        return line

    def explain(self, failure: PutManyFailed) -> PutManyFailed:
        """Return the failure with line numbers instead of positions."""
        stopped_at = self.line_of(failure.unconfirmed[0])
        confirmed = self._lines_text(_others(failure.unconfirmed, failure.taken))
        return PutManyFailed(
            f"line {stopped_at}: {failure.__cause__}; confirmed: {confirmed}; "
            f"not confirmed: {self._lines_text(_runs(failure.unconfirmed))}; "
            f"nothing after line {self.line_of(failure.taken - 1)} was sent",
            confirmed=failure.confirmed,
            unconfirmed=failure.unconfirmed,
            taken=failure.taken,
        )

    def _read(self, line: bytes) -> JobSpec:
        fields = _parse(line)
        if self._default_topic is not None:
            fields.setdefault("topic", self._default_topic)
        try:
            return JobLine.model_validate(fields).spec()
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            text = first["msg"].removeprefix("Value error, ")
            raise InvalidJob(f"{first['loc'][0]}: {text}") from None

    def _lines_text(self, runs: Iterable[tuple[int, int]]) -> str:
        pairs = [(self.line_of(first), self.line_of(last)) for first, last in runs]
        texts = [f"{first}-{last}" if first < last else str(first) for first, last in pairs]
        return f"line {', '.join(texts)}" if texts else "none"


def _parse(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise InvalidJob(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidJob('not a JSON object like {"topic": "mail", "body": 1, "delay": "30m"}')
    return fields


def _runs(positions: Iterable[int]) -> list[tuple[int, int]]:
    """Return sorted positions as pairs of the first and last of each contiguous run."""
    runs: list[tuple[int, int]] = []
    for position in positions:
        if runs and runs[-1][1] == position - 1:
            runs[-1] = (runs[-1][0], position)
        else:
            runs.append((position, position))
    return runs


def _others(positions: Iterable[int], count: int) -> list[tuple[int, int]]:
    """Return the runs between these positions, from 0 to `count`."""
    edges = [-1, *positions, count]
    return [(left + 1, right - 1) for left, right in pairwise(edges) if right - left > 1]
