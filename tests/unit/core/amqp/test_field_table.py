"""Field tables: every AMQP type round-trips, and invalid bytes are refused."""

import math
from datetime import UTC, datetime
from decimal import Decimal
from struct import pack
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pika import data as by_pika
from pika.compat import long

from rabbitdelay.core.amqp import field_table
from rabbitdelay.core.amqp.field_table import Encoded, ScaledInteger, Timestamp, Undecodable

TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
NAME = st.text(st.characters(codec="utf-8"), max_size=60)
INTEGER = st.integers(-(1 << 63), (1 << 63) - 1)
FLOAT = st.floats(allow_nan=False)
TIMESTAMP = st.builds(Timestamp, st.integers(0, (1 << 64) - 1))
SCALED = st.builds(ScaledInteger, st.integers(0, 255), st.integers(-(1 << 31), (1 << 31) - 1))
FOREIGN_TEXT = st.binary(max_size=40).map(lambda raw: raw.decode(errors="surrogateescape"))
SAME_IN_PIKA = st.none() | st.booleans() | INTEGER | TEXT | st.binary(max_size=40)


def nested(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    inside = st.recursive(
        values,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAME, inner, max_size=4),
        max_leaves=12,
    )
    return st.dictionaries(NAME, inside, max_size=6)


TABLES = nested(SAME_IN_PIKA | FLOAT | TIMESTAMP | SCALED | FOREIGN_TEXT)


def decode(encoded: bytes) -> dict[str, Any]:
    return field_table.decode(encoded, 0, len(encoded))


def one(kind: bytes, payload: bytes) -> bytes:
    """Return a table whose only key is `a`."""
    return b"\x01a" + kind + payload


def deep(levels: int, kind: bytes) -> bytes:
    """Return tables in tables, or arrays in arrays, with an empty innermost one."""
    encoded = b""
    for level in range(levels):
        name = b"\x01a" if kind == b"F" or level == levels - 1 else b""
        encoded = name + kind + pack(">I", len(encoded)) + encoded
    return encoded


@given(TABLES)
@example({"float": 0.1, "far": Timestamp((1 << 64) - 1), "price": ScaledInteger(2, 990)})
def test_a_table_round_trips(values: dict[str, Any]) -> None:
    read = decode(field_table.encode(values))
    assert read == values
    assert repr(read) == repr(values)  # True is not 1, and a Timestamp not a tuple


def test_nan_round_trips() -> None:
    assert math.isnan(decode(field_table.encode({"a": math.nan}))["a"])


def test_a_tuple_is_encoded_as_an_array() -> None:
    assert decode(field_table.encode({"a": (1, "b")})) == {"a": [1, "b"]}


@settings(max_examples=30)
@given(TABLES, st.binary(max_size=9), st.binary(max_size=9))
def test_a_table_is_decoded_between_two_offsets(
    values: dict[str, Any], before: bytes, after: bytes
) -> None:
    encoded = field_table.encode(values)
    end = len(before) + len(encoded)
    assert field_table.decode(before + encoded + after, len(before), end) == values


@settings(max_examples=60)
@given(nested(SAME_IN_PIKA))
def test_tables_encode_to_the_same_bytes_as_pika(values: dict[str, Any]) -> None:
    pieces: list[bytes] = []
    by_pika.encode_table(pieces, _with_long_integers(values))
    assert field_table.encode(values) == b"".join(pieces)[4:]


@settings(max_examples=30)
@given(nested(SAME_IN_PIKA))
def test_pika_decodes_encoded_tables(values: dict[str, Any]) -> None:
    encoded = field_table.encode(values)
    read, end = by_pika.decode_table(pack(">I", len(encoded)) + encoded, 0)
    assert (read, end) == (values, 4 + len(encoded))


@pytest.mark.parametrize(
    ("value", "kind", "here"),
    [
        (datetime(2027, 1, 1, tzinfo=UTC), b"T", Timestamp(1_798_761_600)),
        (Decimal("9.9"), b"D", ScaledInteger(1, 99)),
        (Decimal("-0.25"), b"D", ScaledInteger(2, -25)),
        (7, b"I", 7),
    ],
)
def test_tables_encoded_by_pika_are_decoded(value: object, kind: bytes, here: object) -> None:
    pieces: list[bytes] = []
    by_pika.encode_table(pieces, {"a": value})
    encoded = b"".join(pieces)[4:]
    assert encoded[2:3] == kind
    assert decode(encoded) == {"a": here}


@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [
        (b"t", b"\x00", False),
        (b"t", b"\x01", True),
        (b"b", b"\xff", -1),
        (b"B", b"\xff", 255),
        (b"s", b"\xff\xfe", -2),
        (b"U", b"\xff\xfe", -2),
        (b"u", b"\xff\xfe", 65534),
        (b"I", b"\xff\xff\xff\xfd", -3),
        (b"i", b"\xff\xff\xff\xfd", (1 << 32) - 3),
        (b"l", b"\xff" * 7 + b"\xfc", -4),
        (b"L", b"\xff" * 7 + b"\xfc", -4),
        (b"f", pack(">f", 0.5), 0.5),
        (b"d", pack(">d", 0.1), 0.1),
        (b"D", b"\x02\xff\xff\xff\xe7", ScaledInteger(2, -25)),
        (b"T", b"\xff" * 8, Timestamp((1 << 64) - 1)),
        (b"V", b"", None),
        (b"S", b"\x00\x00\x00\x02\xff!", "\udcff!"),
        (b"x", b"\x00\x00\x00\x02\xff!", b"\xff!"),
        (b"A", b"\x00\x00\x00\x04Vt\x01V", [None, True, None]),
        (b"F", b"\x00\x00\x00\x04\x01btA"[:8], {"b": True}),
    ],
)
def test_every_type_is_decoded_as_rabbitmq_does(kind: bytes, payload: bytes, value: object) -> None:
    read = decode(one(kind, payload))
    assert read == {"a": value}
    assert type(read["a"]) is type(value)


def test_a_name_that_is_not_utf_8_keeps_its_bytes() -> None:
    encoded = b"\x02\xff\xfet\x01"
    assert field_table.encode(decode(encoded)) == encoded


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x01",  # no name
        b"\x01a",  # no type
        b"\x05ab",
        one(b"Z", b"\x00\x00\x00\x00"),
        one(b"t", b""),
        one(b"l", b"\x00" * 7),
        one(b"T", b"\x00" * 7),
        one(b"S", b"\x00\x00"),
        one(b"Z", b""),
        one(b"S", b"\x00\x00\x00\x03ab"),
        one(b"S", b"\xff\xff\xff\xffab"),
        one(b"x", b"\x00\x00\x00\x03ab"),
        one(b"A", b"\x00\x00\x00\x03VV"),
        one(b"A", b"\x00\x00\x00\x01lVVVVVVVV"),  # the integer is longer than its array
        one(b"A", b"\x00\x00\x00\x05S\x00\x00\x00\x01a"),
        one(b"F", b"\x00\x00\x00\x09\x01bV"),
        one(b"F", b"\x00\x00\x00\x02\x01bV"),
        one(b"F", b"\xff\xff\xff\xff"),
    ],
)
def test_bytes_that_are_not_a_table_are_refused(encoded: bytes) -> None:
    with pytest.raises(Undecodable, match="headers: "):
        decode(encoded)


@pytest.mark.parametrize(
    ("encoded", "says"),
    [
        (one(b"A", b"\x00\x00\x00\x01t\x01bV"), "longer than the array"),
        (one(b"F", b"\x00\x00\x00\x03\x01bt\x01cV"), "longer than the table"),
    ],
)
def test_a_value_must_not_extend_past_its_container(encoded: bytes, says: str) -> None:
    """The octet after the `t` would be both its value and the length of the next name."""
    with pytest.raises(Undecodable, match=says):
        decode(encoded)


@settings(max_examples=30)
@given(TABLES)
@example({"a": "text"})
@example({"a": ["text", b"bytes", {"b": "text"}]})
def test_a_truncated_table_is_refused(values: dict[str, Any]) -> None:
    encoded = field_table.encode(values)
    for cut in range(len(encoded)):
        with pytest.raises(Undecodable, match="cut off"):
            field_table.decode(encoded[:cut], 0, len(encoded))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_hostile_bytes_are_decoded_or_refused(data: st.DataObject) -> None:
    """A table that was decoded can also be encoded, because it is copied on a retry."""
    encoded = bytearray(field_table.encode(data.draw(TABLES)) + data.draw(st.binary(max_size=20)))
    for _ in range(data.draw(st.integers(0, 4)) if encoded else 0):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(
            st.sampled_from(b"\x00\x01\x7f\xffSFAxltDTV")
        )
    try:
        read = decode(bytes(encoded))
    except Undecodable:
        return
    assert repr(decode(field_table.encode(read))) == repr(read)


@pytest.mark.parametrize("kind", [b"F", b"A"])
def test_nesting_is_limited(kind: bytes) -> None:
    """RabbitMQ accepts tables nested thousands deep, which must not raise RecursionError."""
    allowed = deep(field_table.MOST_NESTING, kind)
    assert field_table.encode(decode(allowed)) == allowed
    for levels in (field_table.MOST_NESTING + 1, 20_000):
        with pytest.raises(Undecodable, match="nested too deep"):
            decode(deep(levels, kind))


def test_a_value_without_an_amqp_type_is_refused() -> None:
    with pytest.raises(TypeError, match="no type for set"):
        field_table.encode({"a": {1}})


def _with_long_integers(value: Any) -> Any:  # noqa: ANN401 - any AMQP value
    """Mark integers so that pika encodes all of them with 64 bits."""
    match value:
        case bool():
            return value
        case int():
            return long(value)
        case list():
            return [_with_long_integers(item) for item in value]
        case dict():
            return {name: _with_long_integers(item) for name, item in value.items()}
    return value


# Values that stay as their bytes


def split(encoded: bytes) -> dict[str, Encoded]:
    return field_table.split(encoded, 0, len(encoded))


@given(TABLES)
def test_a_table_that_is_split_is_put_together_again(values: dict[str, Any]) -> None:
    encoded = field_table.encode(values)
    pieces = split(encoded)
    assert field_table.encode(pieces) == encoded
    assert repr(field_table.decode_each(pieces)) == repr(values)


@given(st.binary(max_size=40))
def test_bytes_that_can_be_split_are_put_together_again(data: bytes) -> None:
    try:
        pieces = split(data)
    except Undecodable:
        return
    names = [name for name in pieces if pieces[name].data]
    assert sorted(names) == sorted(pieces)
    assert len(field_table.encode(pieces)) == len(data)


def test_tables_that_are_nested_too_deep_are_split_and_not_decoded() -> None:
    nested: dict[str, Any] = {}
    for _ in range(field_table.MOST_NESTING + 10):
        nested = {"a": nested}
    encoded = field_table.encode({"f": 0.5} | nested)
    pieces = split(encoded)
    assert field_table.encode(pieces) == encoded
    read = field_table.decode_each(pieces)
    assert read["f"] == 0.5
    assert read["a"] == pieces["a"]


def test_a_name_that_occurs_twice_keeps_both_values() -> None:
    encoded = field_table.encode({"a": 1}) + field_table.encode({"b": 2}) + b"\x01aV"
    pieces = split(encoded)
    assert field_table.encode(pieces) == field_table.encode({"a": 1}) + b"\x01aV" + (
        field_table.encode({"b": 2})
    )
    assert field_table.decode_each(pieces) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "wrong", [b"\x01", b"\x01a", b"\x01a?", b"\x01al\x00", b"\x01aS\x00\x00\x00\x09a"]
)
def test_what_cannot_be_split_is_refused(wrong: bytes) -> None:
    with pytest.raises(Undecodable):
        split(wrong)


def test_a_table_beyond_its_message_is_refused() -> None:
    with pytest.raises(Undecodable, match="cut off"):
        field_table.split(b"\x01aV", 0, 4)
