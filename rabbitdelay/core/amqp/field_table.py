"""Encode and decode AMQP 0-9-1 field tables, the format of message headers, without loss.

A message that is retried, released or buried must keep all headers that its publisher wrote, of any
type. pika truncates a float to an integer, and a timestamp beyond the year 9999 ends the whole
connection with an error, so that one such message in a ready queue would disconnect its consumer on
every delivery.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from types import NoneType
from typing import Any, NamedTuple

_LONG = Struct(">cq")
_LONG_TEXT = Struct(">cI")
_DOUBLE = Struct(">cd")
_TIMESTAMP = Struct(">cQ")
_DECIMAL = Struct(">cBi")
_LENGTH = Struct(">I")

TEXT_ERRORS = "surrogateescape"
"""Keeps the bytes of text that is not UTF-8. Such text is refused as an id and copied unchanged."""
_CUT_OFF = "headers: cut off"
MOST_NESTING = 50
"""Maximum depth of tables in tables. RabbitMQ accepts thousands; decoding recurses for each."""


class Undecodable(ValueError):
    """Raised for bytes that are not a field table."""


class Timestamp(NamedTuple):
    """An AMQP timestamp: 64 bits of seconds, most values of which no datetime can represent."""

    seconds: int


class ScaledInteger(NamedTuple):
    """An AMQP decimal: `unscaled` / 10 ** `scale`."""

    scale: int
    unscaled: int


class Encoded(NamedTuple):
    """A value as its bytes on the wire, type included, for copies that must not change it."""

    data: bytes


def encode(table: Mapping[str, Any]) -> bytes:
    """Return the bytes of a table, without its length prefix."""
    pieces: list[bytes] = []
    for name, value in table.items():
        pieces.append(short_text(name))
        kind = type(value)
        if kind is int:
            pieces.append(_LONG.pack(b"l", value))
        elif kind is str:
            text = value.encode(errors=TEXT_ERRORS)
            pieces.append(_LONG_TEXT.pack(b"S", len(text)) + text)
        else:
            pieces.append(_encode_value(value))
    return b"".join(pieces)


def encode_one(table: Mapping[str, Any], name: str) -> Encoded | None:
    """Return the bytes of one value of a table; None if the table does not have it."""
    return Encoded(_encode_value(table[name])) if name in table else None


@lru_cache(maxsize=1024)
def short_text(text: str) -> bytes:
    """Return the bytes of a short string.

    Cached, because the same few strings are sent repeatedly.
    """
    encoded = text.encode(errors=TEXT_ERRORS)
    return bytes((len(encoded),)) + encoded


def _encode_value(value: object) -> bytes:
    for kind, encoder in _ENCODERS.items():
        if isinstance(value, kind):
            return encoder(value)
    raise TypeError(f"AMQP has no type for {type(value).__name__}")


def _encode_array(values: Iterable[Any]) -> bytes:
    return _sized(b"A", b"".join(map(_encode_value, values)))


def _sized(kind: bytes, data: bytes) -> bytes:
    return _LONG_TEXT.pack(kind, len(data)) + data


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    bool: lambda value: b"t" + bytes((value,)),  # before int, because a bool is an int
    int: lambda value: _LONG.pack(b"l", value),
    str: lambda value: _sized(b"S", value.encode(errors=TEXT_ERRORS)),
    bytes: lambda value: _sized(b"x", value),
    float: lambda value: _DOUBLE.pack(b"d", value),
    NoneType: lambda _: b"V",
    Timestamp: lambda value: _TIMESTAMP.pack(b"T", value.seconds),  # before tuple, its base
    ScaledInteger: lambda value: _DECIMAL.pack(b"D", value.scale, value.unscaled),
    Encoded: lambda value: value.data,
    dict: lambda value: _sized(b"F", encode(value)),
    list: _encode_array,
    tuple: _encode_array,
}


def decode(data: bytes, start: int, end: int, depth: int = 0) -> dict[str, Any]:
    """Return the table between two offsets; raise Undecodable if there is none."""
    if end > len(data):
        raise Undecodable(_CUT_OFF)
    table: dict[str, Any] = {}
    offset = start
    try:
        while offset < end:
            after = offset + 1 + data[offset]
            name = known_text(data[offset + 1 : after])
            if data[after] == _WHOLE_NUMBER:  # most values are; this loop dominates decoding
                (table[name],) = _SIGNED.unpack_from(data, after + 1)
                offset = after + 9
            else:
                table[name], offset = _decode_value(data, after, depth)
    except (IndexError, StructError):
        raise Undecodable(_CUT_OFF) from None
    if offset != end:
        raise Undecodable("headers: a value is longer than the table")
    return table


def split(data: bytes, start: int, end: int) -> dict[str, Encoded]:
    """Return the values of a table as their bytes, or raise Undecodable.

    Values are not decoded, so tables may be nested as deep as the broker allows. A name that occurs
    more than once keeps all its values, encoded one after another.
    """
    if end > len(data):
        raise Undecodable(_CUT_OFF)
    found: dict[str, Encoded] = {}
    offset = start
    try:
        while offset < end:
            after = offset + 1 + data[offset]
            name, before = known_text(data[offset + 1 : after]), offset
            offset = _end_of_value(data, after)
            earlier = found.get(name)
            piece = data[after:offset] if earlier is None else earlier.data + data[before:offset]
            found[name] = Encoded(piece)
    except (IndexError, StructError):
        raise Undecodable(_CUT_OFF) from None
    if offset != end:
        raise Undecodable("headers: a value is longer than the table")
    return found


def decode_each(values: Mapping[str, Encoded]) -> dict[str, Any]:
    """Return the values of a table that was split; one that cannot be decoded stays as its bytes.

    If a name occurs more than once, its first value counts, as it does for RabbitMQ.
    """
    return {name: _decode_or_keep(value) for name, value in values.items()}


def _decode_or_keep(value: Encoded) -> object:
    try:
        return _decode_value(value.data, 0, 0)[0]
    except Undecodable:
        return value


def _end_of_value(data: bytes, offset: int) -> int:
    """Return the offset of the end of a value."""
    kind, start = data[offset], offset + 1
    fixed = _FIXED.get(kind)
    if fixed is not None:
        return start + fixed[0].size
    if kind == _VOID:
        return start
    if kind not in (_TEXT, _TABLE, _ARRAY, _BYTES):
        raise Undecodable(f"headers: no such type as {chr(kind)!r}")
    (length,) = _LENGTH.unpack_from(data, start)
    return start + 4 + int(length)


@lru_cache(maxsize=1024)
def known_text(text: bytes) -> str:
    """Decode text. Cached, because the same few strings are received repeatedly."""
    return text.decode(errors=TEXT_ERRORS)


def _decode_value(data: bytes, offset: int, depth: int) -> tuple[Any, int]:
    kind, start = data[offset], offset + 1
    if kind == _TEXT:
        (length,) = _LENGTH.unpack_from(data, start)
        end = start + 4 + length
        return data[start + 4 : end].decode(errors=TEXT_ERRORS), end
    fixed = _FIXED.get(kind)
    if fixed is not None:
        struct, make = fixed
        value = struct.unpack_from(data, start)
        return (make(*value) if make else value[0]), start + struct.size
    if kind == _VOID:
        return None, start
    return _decode_sized(data, kind, start, depth + 1)


def _decode_sized(data: bytes, kind: int, start: int, depth: int) -> tuple[Any, int]:
    if kind not in (_TABLE, _ARRAY, _BYTES):
        raise Undecodable(f"headers: unknown type {chr(kind)!r}")
    if depth > MOST_NESTING:
        raise Undecodable("headers: tables and arrays are nested too deep")
    (length,) = _LENGTH.unpack_from(data, start)
    begin, end = start + 4, start + 4 + length
    if kind == _TABLE:
        return decode(data, begin, end, depth), end
    if kind == _ARRAY:
        return _decode_array(data, begin, end, depth), end
    return data[begin:end], end


def _decode_array(data: bytes, offset: int, end: int, depth: int) -> list[Any]:
    items: list[Any] = []
    while offset < end:
        value, offset = _decode_value(data, offset, depth)
        items.append(value)
    if offset != end:
        raise Undecodable("headers: a value is longer than the array")
    return items


_WHOLE_NUMBER = ord("l")
_SIGNED = Struct(">q")
_TEXT, _VOID, _TABLE, _ARRAY, _BYTES = b"SVFAx"
_FIXED: dict[int, tuple[Struct, Callable[..., Any] | None]] = {
    ord("t"): (Struct(">?"), None),
    ord("b"): (Struct(">b"), None),
    ord("B"): (Struct(">B"), None),
    ord("U"): (Struct(">h"), None),
    ord("s"): (Struct(">h"), None),
    ord("u"): (Struct(">H"), None),
    ord("I"): (Struct(">i"), None),
    ord("i"): (Struct(">I"), None),
    ord("l"): (Struct(">q"), None),
    ord("L"): (Struct(">q"), None),
    ord("f"): (Struct(">f"), None),
    ord("d"): (Struct(">d"), None),
    ord("T"): (Struct(">Q"), Timestamp),
    ord("D"): (Struct(">Bi"), ScaledInteger),
}
"""Types of fixed size, as RabbitMQ decodes them: `L` and `l` are both signed, and `s` is a
short."""
