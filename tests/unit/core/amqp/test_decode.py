"""Decoding deliveries from bytes cut at any place, and passing on every other frame."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from struct import pack
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pika import data as pika_data
from pika import frame, spec
from pika.exceptions import InvalidFrameError

from rabbitdelay.core.amqp import decode, field_table
from rabbitdelay.core.amqp.decode import (
    Deliveries,
    Delivery,
    GetEmpty,
    Inbound,
    Other,
    Returned,
)
from rabbitdelay.core.jobs.envelope import Message

SHORT = st.text(st.characters(codec="utf-8"), max_size=30)
OPTIONAL = st.none() | SHORT
HEADERS = st.dictionaries(SHORT, st.integers(0, 1000) | SHORT | st.booleans(), max_size=3)
MESSAGES = st.builds(
    Message,
    st.binary(max_size=60),
    HEADERS,
    message_id=OPTIONAL,
    content_type=OPTIONAL,
    timestamp_s=st.none() | st.integers(0, 1 << 40),
    reply_to=OPTIONAL,
    correlation_id=OPTIONAL,
    content_encoding=OPTIONAL,
    priority=st.none() | st.integers(0, 255),
    type=OPTIONAL,
    app_id=OPTIONAL,
)
CHANNELS = st.integers(1, 3)


@dataclass(frozen=True)
class Sent:
    """The bytes that a broker sends, and the expected result of decoding them."""

    channel: int
    frames: tuple[bytes, ...]
    expected: Inbound


def content(channel: int, message: Message, most: int = 16) -> tuple[bytes, ...]:
    """Return the header and body frames, including properties that a Message does not keep."""
    properties = spec.BasicProperties(
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        headers=dict(message.headers),
        delivery_mode=2,
        priority=message.priority,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        expiration="60000",
        message_id=message.message_id,
        timestamp=message.timestamp_s,
        type=message.type,
        user_id="guest",
        app_id=message.app_id,
        cluster_id="c",
    )
    body = message.body
    chunks = [body[start : start + most] for start in range(0, len(body), most)]
    return (
        frame.Header(channel, len(body), properties).marshal(),
        *(frame.Body(channel, chunk).marshal() for chunk in chunks),
    )


def delivered(
    channel: int, message: Message, tag: int = 1, *, consumer: str = "c", again: bool = False
) -> Sent:
    method = spec.Basic.Deliver(consumer, tag, again, "exchange", "key")
    frames = (frame.Method(channel, method).marshal(), *content(channel, message))
    return Sent(channel, frames, Delivery(channel, consumer, tag, again, message))


def got(channel: int, message: Message, tag: int, *, again: bool) -> Sent:
    method = spec.Basic.GetOk(tag, again, "exchange", "key", 7)
    frames = (frame.Method(channel, method).marshal(), *content(channel, message))
    return Sent(
        channel, frames, Delivery(channel, None, tag, again, message, None, "exchange", "key")
    )


def returned(channel: int, message: Message) -> Sent:
    method = spec.Basic.Return(312, "NO_ROUTE", "exchange", "key")
    pieces: list[bytes] = []
    pika_data.encode_table(pieces, dict(message.headers))
    encoded = b"".join(pieces)
    headers = field_table.split(encoded, 4, len(encoded))  # without the length
    found = Returned(channel, "NO_ROUTE", "exchange", "key", message.message_id, headers)
    return Sent(
        channel, (frame.Method(channel, method).marshal(), *content(channel, message)), found
    )


def other(channel: int, method: Any) -> Sent:  # noqa: ANN401 - one of pika's methods
    data = frame.Method(channel, method).marshal()
    return Sent(channel, (data,), Other(data))


def empty(channel: int) -> Sent:
    data = frame.Method(channel, spec.Basic.GetEmpty("")).marshal()
    return Sent(channel, (data,), GetEmpty(channel))


HEARTBEAT = Sent(0, (frame.Heartbeat().marshal(),), Other(frame.Heartbeat().marshal()))
TAGS = st.integers(1, (1 << 64) - 1)
SENT = st.one_of(
    st.builds(delivered, CHANNELS, MESSAGES, TAGS, consumer=SHORT, again=st.booleans()),
    st.builds(got, CHANNELS, MESSAGES, TAGS, again=st.booleans()),
    st.builds(returned, CHANNELS, MESSAGES),
    st.builds(empty, CHANNELS),
    st.just(HEARTBEAT),
    st.builds(
        other,
        CHANNELS,
        st.sampled_from(
            [
                spec.Basic.Ack(3, True),  # noqa: FBT003 - pika's own order
                spec.Basic.Nack(4),
                spec.Basic.ConsumeOk("c"),
                spec.Basic.Cancel("c"),
                spec.Channel.Close(404, "NOT_FOUND", 60, 20),
                spec.Queue.DeclareOk("q", 1, 2),
            ]
        ),
    ),
)


def interleave(data: st.DataObject, sent: Iterable[Sent]) -> tuple[bytes, list[Inbound]]:
    """Interleave frames: in order per channel, in any order between channels.

    Return the bytes and the expected results.
    """
    lanes: dict[int, list[tuple[bytes, Inbound | None]]] = {}
    for one in sent:
        results = [None] * (len(one.frames) - 1) + [one.expected]
        lanes.setdefault(one.channel, []).extend(zip(one.frames, results, strict=True))
    pieces: list[bytes] = []
    expected: list[Inbound] = []
    while lanes:
        channel = data.draw(st.sampled_from(sorted(lanes)))
        piece, result = lanes[channel].pop(0)
        pieces.append(piece)
        expected += [result] if result is not None else []
        lanes = {number: lane for number, lane in lanes.items() if lane}
    return b"".join(pieces), expected


def read(chunks: Iterable[bytes]) -> list[Inbound]:
    deliveries = Deliveries()
    return [found for chunk in chunks for found in deliveries.feed(chunk)]


def cut(stream: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


@settings(deadline=None)
@given(st.lists(SENT, max_size=6), st.data())
def test_frames_are_decoded_wherever_the_bytes_are_cut(
    sent: list[Sent], data: st.DataObject
) -> None:
    stream, expected = interleave(data, sent)
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=10))
    assert read(cut(stream, places)) == expected


EXAMPLES: Sequence[Sent] = (
    HEARTBEAT,
    delivered(1, Message(b"x" * 40, {"a": "b"}, "id"), 5, again=True),
    delivered(2, Message(b"", {})),
    other(1, spec.Basic.Ack(9)),
    got(3, Message(b"hello", {"n": 1}), 8, again=False),
    empty(3),
    returned(2, Message(b"x" * 40, {"a": "b"}, "id")),
)


def test_frames_are_decoded_for_every_single_cut() -> None:
    stream = b"".join(piece for one in EXAMPLES for piece in one.frames)
    expected = [one.expected for one in EXAMPLES]
    for place in range(len(stream)):
        assert read(cut(stream, [place])) == expected
    assert read(bytes((octet,)) for octet in stream) == expected


def test_a_complete_delivery_is_yielded_at_once() -> None:
    deliveries = Deliveries()
    *first, last = delivered(1, Message(b"x" * 40, {})).frames
    assert list(deliveries.feed(b"".join(first) + last[:-1])) == []
    (found,) = deliveries.feed(last[-1:] + HEARTBEAT.frames[0][:3])
    assert isinstance(found, Delivery)


def with_properties(
    channel: int,
    flags: int,
    properties: bytes,
    body: bytes = b"",
    *,
    made: Callable[[int, Message], Sent] = delivered,
) -> list[bytes]:
    """Return the frames of a delivery whose encoded properties are these bytes."""
    payload = pack(">HHQH", 60, 0, len(body), flags) + properties
    header = pack(">BHI", 2, channel, len(payload)) + payload + b"\xce"
    bodies = [frame.Body(channel, body).marshal()] if body else []
    return [made(channel, Message(b"", {})).frames[0], header, *bodies]


CONTENT_TYPE, HEADERS_FLAG, DELIVERY_MODE = 1 << 15, 1 << 13, 1 << 12
MESSAGE_ID, TIMESTAMP = 1 << 7, 1 << 6


@pytest.mark.parametrize(
    ("flags", "properties", "problem"),
    [
        (CONTENT_TYPE, b"", "cut off"),
        (CONTENT_TYPE, b"\x05text", "cut off"),
        (DELIVERY_MODE, b"", "cut off"),
        (TIMESTAMP, b"\x00" * 7, "cut off"),
        (HEADERS_FLAG, b"\x00\x00", "cut off"),
        (HEADERS_FLAG, b"\x00\x00\x00\x09\x01a", "headers: cut off"),
        (HEADERS_FLAG, b"\xff\xff\xff\xff", "headers: cut off"),
        (HEADERS_FLAG, b"\x00\x00\x00\x03\x01aZ", "unknown type 'Z'"),
        (0xFFFC, b"\xff" * 50, "cut off"),
    ],
)
def test_undecodable_properties_are_a_problem_of_one_delivery_only(
    flags: int, properties: bytes, problem: str
) -> None:
    bad, good = with_properties(1, flags, properties, b"body"), delivered(1, Message(b"x", {}), 5)
    found, after = read([b"".join((*bad, *good.frames))])
    assert isinstance(found, Delivery)
    assert (found.channel, found.consumer_tag, found.tag) == (1, "c", 1)
    assert problem in (found.problem or "")
    assert after == good.expected


@given(st.integers(0, 0xFFFF), st.binary(max_size=60), st.binary(max_size=5))
@example(HEADERS_FLAG, b"\x00\x00\x00\x06\x01aF\xff\xff\xff\xff", b"")
def test_any_properties_yield_a_delivery(flags: int, properties: bytes, body: bytes) -> None:
    stream = b"".join((*with_properties(1, flags, properties, body), *EXAMPLES[1].frames))
    found, after = read([stream])
    assert isinstance(found, Delivery)
    assert found.problem is not None or found.message.body == body
    assert after == EXAMPLES[1].expected


@given(MESSAGES)
def test_the_original_of_a_message_has_its_headers_as_they_came(message: Message) -> None:
    sent = delivered(1, message)
    (found,) = read(sent.frames)
    assert isinstance(found, Delivery)
    original = decode.original(found)
    assert replace(original, headers=field_table.decode_each(original.headers)) == message
    assert field_table.encode(original.headers) in b"".join(sent.frames)


USUAL = CONTENT_TYPE | HEADERS_FLAG | DELIVERY_MODE | MESSAGE_ID | TIMESTAMP
"""The properties that nearly every job has. Exactly these are decoded by a fast path."""
USUAL_PROPERTIES = b"\x04text" + b"\0\0\0\0" + b"\x02" + b"\x02id" + b"\0" * 8


def test_the_usual_properties_are_decoded() -> None:
    (found,) = read(with_properties(1, USUAL, USUAL_PROPERTIES))
    assert isinstance(found, Delivery)
    assert found.problem is None
    assert (found.message.content_type, found.message.message_id) == ("text", "id")


@pytest.mark.parametrize("size", range(len(USUAL_PROPERTIES)))
def test_the_usual_properties_may_be_cut_off_anywhere(size: int) -> None:
    (found,) = read(with_properties(1, USUAL, USUAL_PROPERTIES[:size]))
    assert isinstance(found, Delivery)
    assert "cut off" in (found.problem or "")


def test_where_a_message_was_published_to() -> None:
    for sent in (delivered(1, Message(b"x", {})), got(1, Message(b"x", {}), 2, again=False)):
        (found,) = read(sent.frames)
        assert isinstance(found, Delivery)
        assert decode.published_to(found) == ("exchange", "key")


def test_an_original_whose_properties_are_cut_off() -> None:
    for flags, properties in (
        (CONTENT_TYPE, b""),
        (TIMESTAMP, b"1"),
        (HEADERS_FLAG, b"\0\0\0\x09"),
    ):
        (found,) = read(with_properties(1, flags, properties))
        assert isinstance(found, Delivery)
        with pytest.raises(field_table.Undecodable):
            decode.original(found)


def test_a_timestamp_that_pika_cannot_decode_is_decoded() -> None:
    """With pika, each redelivery would close the connection."""
    (found,) = read(with_properties(1, TIMESTAMP, b"\xff" * 8))
    assert isinstance(found, Delivery)
    assert found.message.timestamp_s == (1 << 64) - 1


def test_headers_of_a_returned_message_are_not_decoded() -> None:
    """A value that pika cannot decode would close the connection."""
    headers = b"".join((b"\x04when", b"T" + b"\xff" * 8, b"\x04deep", b"F\x00\x00\x00\x01\xff"))
    properties = pack(">I", len(headers)) + headers
    (found,) = read(with_properties(1, HEADERS_FLAG, properties, b"body", made=returned))
    assert isinstance(found, Returned)
    assert found.headers == field_table.split(headers, 0, len(headers))


@pytest.mark.parametrize(
    ("flags", "properties"), [(CONTENT_TYPE, b""), (HEADERS_FLAG, b"\x00\x00\x00\x03\x01aZ")]
)
def test_a_returned_message_with_undecodable_properties_has_no_id_and_no_headers(
    flags: int, properties: bytes
) -> None:
    (found,) = read(with_properties(1, flags, properties, made=returned))
    assert found == Returned(1, "NO_ROUTE", "exchange", "key", None, {})


def test_a_damaged_frame_is_passed_on_for_pika_to_refuse() -> None:
    """The last octet of the frame is wrong."""
    damaged = delivered(1, Message(b"", {})).frames[0][:-1] + b"\x00"
    (found,) = read([damaged])
    assert found == Other(damaged)
    with pytest.raises(InvalidFrameError):
        frame.decode_frame(damaged)


METHOD, HEADER, BODY = 1, 2, 3


def raw(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


@pytest.mark.parametrize(
    "strange",
    [
        raw(METHOD, b""),
        raw(METHOD, b"\x00\x3c"),
        raw(METHOD, b"\x00\x3c\x00\x3c"),  # basic.deliver without arguments
        raw(METHOD, b"\x00\x3c\x00\x3c\x01c\x00\x00"),
        raw(METHOD, b"\x00\x3c\x00\x47\x00"),
        raw(METHOD, b"\x00\x3c\x00\x32\x01\x38"),
        raw(METHOD, b"\x00\x32\x00\x3c" + b"\x00" * 20),  # method 60 of another class
        raw(HEADER, b"\x00\x3c\x00\x00"),
        raw(HEADER, pack(">HHQH", 60, 0, 3, 0)),  # without a method before it
        raw(BODY, b"abc"),
        raw(4, b"abc"),
    ],
)
def test_a_frame_that_no_broker_sends_is_passed_on(strange: bytes) -> None:
    good = EXAMPLES[1]
    expected = [Other(strange), good.expected, Other(strange)]
    assert read([strange, *good.frames, strange]) == expected


@pytest.mark.parametrize(
    "strange", [raw(HEADER, b"\x00\x3c"), raw(BODY, b"abc"), raw(8, b"")], ids=repr
)
def test_an_unexpected_content_frame_is_passed_on(strange: bytes) -> None:
    method, *rest = EXAMPLES[1].frames
    assert read([method, strange, *rest]) == [Other(strange), EXAMPLES[1].expected]


def test_a_body_longer_than_announced_is_passed_on() -> None:
    too_long = raw(BODY, b"y" * 41)
    method, header, *bodies = EXAMPLES[1].frames
    found = read([method, header, too_long, *bodies])
    assert found == [Other(too_long), EXAMPLES[1].expected]


def test_a_protocol_header_is_passed_on_whole() -> None:
    """A broker of another version sends one and closes the connection."""
    greeting = b"AMQP\x00\x01\x00\x00"
    for place in range(9):
        assert read(cut(greeting, [place])) == [Other(greeting)]
