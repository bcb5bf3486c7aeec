"""docs/wire-format.md agrees with the code: its programs, tables, numbers and commands."""

import json
import re
import shlex
from pathlib import Path
from typing import get_args

import pytest

from rabbitdelay import duration
from rabbitdelay.core.deletes import tombstone_table
from rabbitdelay.core.deletes.records import (
    Delete,
    Exact,
    Fence,
    Horizon,
    Keep,
    Pause,
    Purge,
    Record,
    Resume,
    SnapshotTaken,
    decode,
    encode,
)
from rabbitdelay.core.deletes.tombstones import GRACE_MS, HORIZON_MS
from rabbitdelay.core.jobs import envelope, validation
from rabbitdelay.core.settle.republish import BURIED, ERROR, ERROR_TYPE, REASON, TRACEBACK
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.models import DEFAULT_TTR_MS
from tests.support.programs import command_line

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "wire-format.md").read_text()
PROGRAMS = {
    "putter.py": "python",
    "consumer.py": "python",
    "deleter.py": "python",
    "tombstones.py": "python",
    "careful_consumer.py": "python",
    "putter.js": "js",
    "consumer.js": "js",
}


def _table(first_column: str) -> list[list[str]]:
    """Return the rows of the table with this first column, without backticks."""
    lines = PAGE.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {first_column} |")) + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
    return rows


def _commands() -> list[list[str]]:
    lines = re.findall(r"`(rabbitdelay [a-z][^`]*)`|^(rabbitdelay .+)$", PAGE, re.MULTILINE)
    return [shlex.split(inline or line, comments=True)[1:] for inline, line in lines]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_programs_are_the_files_that_the_tests_run(name: str) -> None:
    program = (ROOT / "examples" / "plain_amqp" / name).read_text()
    assert f"`{name}`:\n\n```{PROGRAMS[name]}\n{program}```\n" in PAGE
    assert len(program.splitlines()) < 120


@pytest.mark.parametrize("arguments", _commands(), ids=" ".join)
def test_the_command_line_takes_each_command(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command_line.check(arguments, monkeypatch)


def test_it_has_every_header_and_default() -> None:
    rows = {row[0]: row[-1] for row in _table("header")}
    assert rows.keys() == envelope._Headers.__annotations__.keys()
    nothing = envelope.decode(envelope.Message(b"", {}), topic="t", now_ms=0, random_hex="")
    assert rows["rd-version"] == str(envelope.VERSION)
    assert rows["rd-attempt"] == str(nothing.attempt)
    assert str(DEFAULT_TTR_MS) in rows["rd-ttr"]


def test_it_has_the_bounds_of_the_headers() -> None:
    bounds = {row[0]: row[3] for row in _table("header")}
    assert bounds["rd-ttr"] == f"{validation.MIN_TTR_MS} … {validation.MAX_TTR_MS}"
    assert bounds["rd-max-attempts"] == f"1 … {validation.MAX_ATTEMPTS}"
    for name in ("rd-backoff", "rd-backoff-max"):
        assert bounds[name] == f"0 … {validation.MAX_BACKOFF_MS}"


def test_it_has_every_header_that_consumers_add() -> None:
    added = {ERROR, ERROR_TYPE, REASON, BURIED, TRACEBACK}
    assert {row[0] for row in _table("added")} == added


def test_it_has_the_property_that_asks_for_a_response() -> None:
    assert "reply_to" in {row[0] for row in _table("property")}


def test_it_has_every_level() -> None:
    topology = Topology()
    for row, level in zip(_table("level"), ladder.LEVELS, strict=True):
        first, last = (
            topology.hold_queue(ladder.Hop(level, digit)).removeprefix(topology.prefix)
            for digit in (1, level.highest_digit)
        )
        assert row[0] == level.name
        assert f"{level.unit_ms} ms" in row[1]
        assert row[2:] == [f"0 … {level.highest_digit}", f"{first} … {last}"]
        assert f"{level.unit_ms}," in PAGE or f"{level.unit_ms}:" in PAGE  # the pseudo code


def test_it_has_the_longest_delay() -> None:
    assert f"{ladder.MAX_DELAY_MS // ladder.DAY_MS} days ({ladder.MAX_DELAY_MS} ms)" in PAGE


@pytest.mark.parametrize("row", _table("delay"), ids=lambda row: row[0])
def test_its_examples_of_delays_are_right(row: list[str]) -> None:
    delay, rounded, key, exchange = row
    digits = ladder.to_digits(_milliseconds(delay))
    topology = Topology()
    assert _milliseconds(rounded) == ladder.to_delay_ms(digits)
    assert key == ladder.routing_key(digits, "orderclose")
    assert topology.prefix + exchange == topology.level_exchange(ladder.entry_index(digits))


def test_every_name_on_it_is_one_that_is_made() -> None:
    topology = Topology()
    planned = {
        item.name
        for item in topology.plan(ladder.EVERY_HOP, ["orderclose"])
        if hasattr(item, "name")
    }
    named = set(re.findall(r"rabbitdelay\.v1\.[a-z0-9.]*[a-z0-9]", PAGE))
    assert named <= planned
    assert len(named) >= 3


def test_it_has_the_streams_of_deletes() -> None:
    topology = Topology()
    assert [row[0] for row in _table("stream")] == [topology.tombstones, topology.snapshots]
    assert topology.compaction.removeprefix(topology.prefix) in PAGE


def test_it_has_every_kind_of_record_with_all_its_fields() -> None:
    exact = Exact("order-17", "t", 2)
    kinds: list[Record] = [
        Delete(("order-17",), 1, 2),
        Keep("order-17", "t", 1, 2, ("u",)),
        Purge("topic", 1),
        Pause("topic", 3),
        Resume("topic"),
        Horizon(1),
        Fence("nonce"),
        SnapshotTaken(1),
    ]
    rows = {row[0]: row[1] for row in _table("record")}
    assert {type(kind) for kind in kinds} == set(get_args(Record))
    for kind in kinds:
        name, *fields = json.loads(encode(kind))
        assert all(field in rows[name] for field in (name, *fields)), name
    assert len(rows) == len(kinds) + len([exact])


def test_its_examples_of_records_are_records() -> None:
    examples = re.findall(r"^\{.*\}$", PAGE, re.MULTILINE)
    decoded = [decode(example.encode()) for example in examples]
    assert [type(record) for record in decoded] == [Delete, Delete, Keep, Purge]
    assert isinstance(decoded[1], Delete)
    assert isinstance(decoded[1].jobs[0], Exact)


def test_it_has_the_times_of_forgetting_and_of_fences() -> None:
    assert f"{HORIZON_MS // ladder.DAY_MS} days" in PAGE
    assert f"{GRACE_MS // ladder.HOUR_MS} hours" in PAGE
    assert "within the last 2 s" in PAGE
    assert f"stones, {tombstone_table.WIDTH} bytes each" in PAGE


def test_it_has_the_bytes_of_a_tombstone() -> None:
    """The rows of both tables follow each other without a gap, to the end."""
    for name, width in (("bytes of a piece", 32), ("bytes of a stone", tombstone_table.WIDTH)):
        ends = [[int(number) for number in re.findall(r"\d+", row[0])] for row in _table(name)]
        assert [end[0] for end in ends[1:]] == [end[-1] + 1 for end in ends[:-1]]
        assert ends[-1][-1] in (width, width - 1)


def _milliseconds(text: str) -> int:
    """Read a delay of the table, such as `1 h + 1 ms`."""
    parts = text.replace("min", "m").replace(" ", "").split("+")
    return sum(duration.parse(part, what="delay") for part in parts)
