"""Records: each round-trips, and other bodies are refused."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.deletes import records
from rabbitdelay.core.deletes.records import (
    MAX_MS,
    VERSION,
    Delete,
    Exact,
    Fence,
    Horizon,
    Keep,
    NotARecord,
    Pause,
    Purge,
    Record,
    RecordTooNew,
    Resume,
    SnapshotTaken,
    decode,
    describe,
    encode,
)

TEXT = st.text(max_size=20)
NUMBER = st.integers(-(1 << 60), 1 << 60)
MOMENT = st.integers(0, MAX_MS - 1)
TARGETS = st.lists(TEXT | st.builds(Exact, TEXT, TEXT, MOMENT), max_size=5).map(tuple)
KINDS: dict[type[Record], st.SearchStrategy[Record]] = {
    Delete: st.builds(Delete, TARGETS, MOMENT, st.none() | MOMENT),
    Keep: st.builds(Keep, TEXT, TEXT, MOMENT, MOMENT, st.lists(TEXT, max_size=3).map(tuple)),
    Purge: st.builds(Purge, TEXT, MOMENT),
    Pause: st.builds(Pause, TEXT, st.none() | NUMBER),
    Resume: st.builds(Resume, TEXT),
    Horizon: st.builds(Horizon, MOMENT),
    Fence: st.builds(Fence, TEXT),
    SnapshotTaken: st.builds(SnapshotTaken, MOMENT),
}
RECORDS = st.one_of(*KINDS.values())
WORDS = (
    *("delete", "keep", "purge", "pause", "resume", "horizon", "fence", "snapshot"),
    *("time", "due", "instead_of", "since", "version"),
)
ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=5)
"""With halves of surrogates, which JSON can hold and nothing else can."""
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=8,
)
NEARLY_RECORDS = st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=5)


def is_read_or_refused(body: bytes) -> None:
    """Check that a body round-trips as a record, or is refused with a printable error."""
    try:
        record = decode(body)
    except (NotARecord, RecordTooNew) as error:
        str(error).encode()
    else:
        assert decode(encode(record)) == record


def test_every_kind_of_record_is_covered() -> None:
    assert set(KINDS) == set(Record.__args__)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_record_round_trips(kind: type[Record], data: st.DataObject) -> None:
    record = data.draw(KINDS[kind])
    assert decode(encode(record)) == record


@given(RECORDS)
def test_a_record_is_minimal_json(record: Record) -> None:
    fields = json.loads(encode(record))
    assert set(fields) <= set(WORDS)
    assert None not in fields.values()


def test_the_examples_are_valid() -> None:
    """All examples in the module's docstring, with the ellipses filled in."""
    shown = re.findall(r"\{.*?\}", str(records.__doc__))
    filled = [one.replace(": …", ": 1731500000000").encode() for one in shown]
    assert [decode(body) for body in filled] == [
        Delete(("order-17", "order-18"), 1731500000000),
        Delete((Exact("order-17", "4f5c…", 1731500000000),), 1731500000000),
        Keep("order-17", "4f5c…", 1731500000000, 1731500000000, ("9a0b…",)),
        Purge("order.close", 1731500000000),
        Pause("order.close"),
        Resume("order.close"),
        Horizon(31536000000),
        Fence("8c1d…"),
        SnapshotTaken(1731500000000),
    ]


def test_version_1_remains_readable() -> None:
    """Records as version 1 wrote them.

    Never remove this test, because the log is kept for years.
    """
    assert VERSION == 1
    assert encode(Keep("ü", "t", 1, 2, ("s",))) == (
        '{"keep":["ü","t"],"time":1,"due":2,"instead_of":["s"]}'.encode()
    )
    assert encode(Delete(("a", Exact("b", "t", 3)), 1)) == (
        b'{"delete":["a",["b","t",3]],"time":1}'
    )


# Invalid bodies


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    is_read_or_refused(body)


@given(VALUES | NEARLY_RECORDS)
def test_any_json_is_read_or_refused(value: object) -> None:
    is_read_or_refused(json.dumps(value).encode())


@given(RECORDS, st.sampled_from(WORDS), VALUES)
def test_a_record_with_one_field_wrong_is_read_or_refused(
    record: Record, word: str, value: object
) -> None:
    fields = json.loads(encode(record)) | {word: value}
    is_read_or_refused(json.dumps(fields).encode())


@given(RECORDS, st.data())
def test_a_truncated_record_is_refused(record: Record, data: st.DataObject) -> None:
    body = encode(record)
    with pytest.raises(NotARecord):
        decode(body[: data.draw(st.integers(0, len(body) - 1))])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"delete"',
        b"{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 10_000,
        b"\xff",
        b'{"delete": ["a"]}',
        b'{"delete": "a", "time": 1}',
        b'{"delete": [1], "time": 1}',
        b'{"delete": [null], "time": 1}',
        b'{"delete": [["a", "t"]], "time": 1}',
        b'{"delete": [["a", "t", null]], "time": 1}',
        b'{"delete": ["a"], "time": "1"}',
        b'{"delete": ["a"], "time": 1.0}',
        b'{"delete": ["a"], "time": NaN}',
        b'{"delete": ["a"], "time": true}',
        b'{"delete": ["a"], "time": 1, "due": false}',
        b'{"delete": ["\\ud800"], "time": 1}',
        b'{"keep": ["a"], "time": 1, "due": 2}',
        b'{"keep": ["a", "t"], "time": 1}',
        b'{"keep": ["a", "t"], "time": 1, "due": 2, "instead_of": "st"}',
        b'{"keep": ["a", "t"], "time": 1, "due": 2, "instead_of": null}',
        b'{"keep": ["a", "t"], "time": 1, "due": 2, "instead_of": {"s": 1}}',
        b'{"keep": ["a", "t"], "time": 1, "due": 2, "instead_of": 7}',
        b'{"keep": ["a", "\\udfff"], "time": 1, "due": 2}',
        b'{"purge": "a"}',
        b'{"purge": null, "time": 1}',
        b'{"purge": "\\udc00", "time": 1}',
        b'{"pause": ["a"]}',
        b'{"resume": 7}',
        b'{"horizon": true}',
        b'{"fence": 7}',
        b'{"snapshot": "now"}',
        b'{"\\ud800": 1}',
        b'{"version": true, "pause": "a"}',
        b'{"version": "2", "pause": "a"}',
        b'{"version": null, "pause": "a"}',
    ],
)
def test_an_invalid_body_is_refused_with_the_reason(body: bytes) -> None:
    with pytest.raises(NotARecord) as raised:
        decode(body)
    assert str(raised.value).encode()


def test_unknown_fields_are_ignored() -> None:
    body = b'{"pause": "a", "by": "ops", "why": [1, 2]}'
    assert decode(body) == Pause("a")


def test_a_due_time_of_null_means_unknown() -> None:
    assert decode(b'{"delete": ["a"], "time": 1, "due": null}') == Delete(("a",), 1)


# Newer versions


@given(RECORDS, st.integers(VERSION + 1))
def test_a_record_of_a_higher_version_stops_its_reader(record: Record, version: int) -> None:
    fields = json.loads(encode(record)) | {"version": version}
    with pytest.raises(RecordTooNew, match="upgrade"):
        decode(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "fields",
    [{"revive": ["a"]}, {"delete": "all", "time": 1.5}, {}],
)
def test_an_unknown_kind_with_a_higher_version_is_too_new(fields: dict[str, Any]) -> None:
    with pytest.raises(RecordTooNew):
        decode(json.dumps(fields | {"version": VERSION + 1}).encode())


@given(RECORDS)
def test_a_record_may_contain_the_current_version(record: Record) -> None:
    fields = json.loads(encode(record)) | {"version": VERSION}
    assert decode(json.dumps(fields).encode()) == record


@pytest.mark.parametrize("moment", [-1, MAX_MS, 1_763_300_000_000_000])
def test_a_time_in_another_unit_is_refused(moment: int) -> None:
    """A time in microseconds would delete all future jobs."""
    for fields in ({"purge": "t", "time": moment}, {"delete": ["a"], "time": moment}):
        with pytest.raises(NotARecord, match="milliseconds"):
            decode(json.dumps(fields).encode())


# Errors


@pytest.mark.parametrize(
    ("record", "described"),
    [
        (Delete(("a",), 1), "delete of a"),
        (Delete(("a", Exact("b", "t", 3), "c"), 1), "delete of a and 2 more"),
        (Keep("a", "t", 1, 2), "delete of earlier jobs with id a"),
        (Pause("mail"), "pause of topic mail"),
        (Horizon(5), "record of the log of deletes"),
    ],
)
def test_an_error_says_what_a_record_does(record: Record, described: str) -> None:
    assert describe(record) == described
