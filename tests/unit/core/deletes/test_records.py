"""Records: each reads back as itself, and what is none is never taken for one."""

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
    Taken,
    decode,
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
    Taken: st.builds(Taken, MOMENT),
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
    """A body is a record that reads back as itself, or is refused with an error one can print."""
    try:
        record = decode(body)
    except (NotARecord, RecordTooNew) as error:
        str(error).encode()
    else:
        assert decode(encode(record)) == record


def test_every_kind_is_tried_here() -> None:
    assert set(KINDS) == set(Record.__args__)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_record_reads_back_as_itself(kind: type[Record], data: st.DataObject) -> None:
    record = data.draw(KINDS[kind])
    assert decode(encode(record)) == record


@given(RECORDS)
def test_a_record_is_json_that_says_no_more_than_it_must(record: Record) -> None:
    fields = json.loads(encode(record))
    assert set(fields) <= set(WORDS)
    assert None not in fields.values()


def test_the_examples_are_valid() -> None:
    """All that the module's docstring shows, with its dots filled in."""
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
        Taken(1731500000000),
    ]


def test_version_1_is_read_for_ever() -> None:
    """Records as version 1 wrote them. The log is kept for years: never remove this test."""
    assert VERSION == 1
    assert encode(Keep("ü", "t", 1, 2, ("s",))) == (
        '{"keep":["ü","t"],"time":1,"due":2,"instead_of":["s"]}'.encode()
    )
    assert encode(Delete(("a", Exact("b", "t", 3)), 1)) == (
        b'{"delete":["a",["b","t",3]],"time":1}'
    )


# What is no record


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
def test_a_record_that_was_cut_is_refused(record: Record, data: st.DataObject) -> None:
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
def test_what_is_no_record_says_why(body: bytes) -> None:
    with pytest.raises(NotARecord) as raised:
        decode(body)
    assert str(raised.value).encode()


def test_what_is_not_known_beside_a_record_is_passed_over() -> None:
    body = b'{"pause": "a", "by": "ops", "why": [1, 2]}'
    assert decode(body) == Pause("a")


def test_a_due_time_that_is_null_is_not_known() -> None:
    assert decode(b'{"delete": ["a"], "time": 1, "due": null}') == Delete(("a",), 1)


# What is too new


@given(RECORDS, st.integers(VERSION + 1))
def test_a_record_of_a_higher_version_stops_whoever_reads_it(record: Record, version: int) -> None:
    fields = json.loads(encode(record)) | {"version": version}
    with pytest.raises(RecordTooNew, match="upgrade"):
        decode(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "fields",
    [{"revive": ["a"]}, {"delete": "all", "time": 1.5}, {}],
)
def test_a_kind_that_is_not_known_is_too_new_if_its_version_is(fields: dict[str, Any]) -> None:
    with pytest.raises(RecordTooNew):
        decode(json.dumps(fields | {"version": VERSION + 1}).encode())


@given(RECORDS)
def test_a_record_may_say_the_version_that_it_has(record: Record) -> None:
    fields = json.loads(encode(record)) | {"version": VERSION}
    assert decode(json.dumps(fields).encode()) == record


@pytest.mark.parametrize("moment", [-1, MAX_MS, 1_763_300_000_000_000])
def test_a_time_in_another_unit_is_no_record(moment: int) -> None:
    """Microseconds by mistake would kill all that is ever put."""
    for fields in ({"purge": "t", "time": moment}, {"delete": ["a"], "time": moment}):
        with pytest.raises(NotARecord, match="milliseconds"):
            decode(json.dumps(fields).encode())
