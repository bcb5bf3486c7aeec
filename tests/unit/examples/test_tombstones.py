"""The rules in examples/plain_amqp/tombstones.py are those of rabbitdelay."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.deletes import records, snapshots
from rabbitdelay.core.deletes.cursor import Following
from rabbitdelay.core.deletes.records import (
    Delete,
    Exact,
    Fence,
    Keep,
    Pause,
    Purge,
    Record,
    Resume,
)
from rabbitdelay.core.deletes.tombstones import Tombstones

FILE = Path(__file__).parents[3] / "examples" / "plain_amqp" / "tombstones.py"
TOPICS, IDS, TOKENS, TIMES_MS = ("a", "b"), ("x", "y", "ä"), ("", "t", "u", "v"), (0, 1, 2, 3)

topics, ids = st.sampled_from(TOPICS), st.sampled_from(IDS)
tokens, times_ms = st.sampled_from(TOKENS), st.sampled_from(TIMES_MS)
named = ids | st.builds(Exact, ids, tokens, times_ms)
any_records = st.one_of(
    st.builds(Delete, st.lists(named, max_size=3).map(tuple), times_ms),
    st.builds(
        Keep, ids, tokens, times_ms, times_ms, st.lists(tokens.filter(bool), max_size=2).map(tuple)
    ),
    st.builds(Purge, topics, times_ms),
    st.builds(Pause, topics, st.none() | st.integers(0, 5)),
    st.builds(Resume, topics),
    st.builds(Fence, tokens),
)


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_tombstones", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLAIN = _load()


def assert_same(plain: Any, ours: Tombstones) -> None:  # noqa: ANN401 - loaded from a file
    for topic in TOPICS:
        assert plain.is_paused(topic) == ours.is_paused(topic)
        for job in (
            (i, token, put_ms) for i in IDS for token in TOKENS for put_ms in (*TIMES_MS, None)
        ):
            assert plain.kills(topic, *job) == (ours.kills(topic, *job) is not None), (topic, job)


@given(st.lists(any_records, max_size=8))
def test_the_example_kills_the_same_jobs_as_rabbitdelay(log: list[Record]) -> None:
    plain, ours = PLAIN.Tombstones(), Tombstones()
    following = Following(ours)
    for position, record in enumerate(log):
        plain.read(position, records.encode(record))
        following.read(position, records.encode(record))
    assert_same(plain, ours)


@given(st.lists(any_records, max_size=6), st.lists(any_records, max_size=4))
def test_the_example_reads_records_that_consumers_rewrite_after_the_stream_was_deleted(
    old: list[Record], new: list[Record]
) -> None:
    plain, before, ours = PLAIN.Tombstones(), Tombstones(), Tombstones()
    for position, record in enumerate(old):
        before.add(record, position)
    following = Following(ours)
    bodies = [records.encode(record) for record in (*new, *before.records(for_another_log=True))]
    for position, body in enumerate([*bodies, *snapshots.pieces_of(before)]):
        plain.read(position, body)
        following.read(position, body)
    assert_same(plain, ours)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"\xff", b"[]", b"7", b'"delete"', b"RDS1", b"RDS1" + bytes(66)),
        *(b"{}", b'{"delete": 3, "time": 9}', b'{"delete": ["x", 3], "time": 9}'),
        *(b'{"delete": ["x"]}', b'{"delete": ["x"], "time": "9"}', b'{"delete": ["\\ud800"]}'),
        *(b'{"delete": ["x", ["x", "t"]], "time": 9}', b'{"keep": ["x"], "time": 9, "due": 9}'),
        *(b'{"keep": ["x", "t"], "time": 9}', b'{"purge": 1, "time": 9}', b'{"pause": 1}'),
        *(b'{"delete": ["x"], "time": -1}', b'{"delete": ["x"], "time": 1731500000000000}'),
        *(b'{"purge": "a", "time": 1731500000000000}', b'{"purge": "a", "time": -1}'),
        *(b'{"some": "kind"}', b'{"version": "new", "delete": ["x"], "time": 9}'),
    ],
)
def test_both_skip_messages_that_are_not_records(body: bytes) -> None:
    plain, ours = PLAIN.Tombstones(), Tombstones()
    plain.read(0, body)
    Following(ours).read(0, body)
    assert_same(plain, ours)
    assert not any((plain.before, plain.exact, plain.purged_ms, plain.switches))


def test_a_record_of_an_unknown_version_stops_the_example() -> None:
    with pytest.raises(PLAIN.TooNew, match="version 2"):
        PLAIN.Tombstones().read(0, json.dumps({"version": 2, "revive": ["x"]}).encode())
