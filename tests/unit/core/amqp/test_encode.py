"""Encoding frames, compared with pika's own encoder."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pika import frame, spec
from pika.compat import long

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.jobs.envelope import Message

SHORT = st.text(st.characters(codec="utf-8"), max_size=60)
OPTIONAL = st.none() | SHORT
CHANNELS = st.integers(1, 65535)
TAGS = st.integers(0, (1 << 64) - 1)
HEADERS = st.dictionaries(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    st.integers(-(1 << 63), (1 << 63) - 1) | st.text(st.characters(codec="utf-8"), max_size=80),
    max_size=8,
)
MESSAGES = st.builds(
    Message,
    st.binary(max_size=20_000),
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
EVERY_PROPERTY = Message(b"b", {"h": 1}, "m", "c", 7, "r", "k", "e", 5, "t", "a")


def by_pika(channel: int, exchange: str, key: str, message: Message, frame_max: int) -> bytes:
    headers: dict[str, Any] = {
        name: long(value) if isinstance(value, int) else value
        for name, value in message.headers.items()
    }
    properties = spec.BasicProperties(
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        headers=headers,
        delivery_mode=2,
        priority=message.priority,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        message_id=message.message_id,
        timestamp=message.timestamp_s,
        type=message.type,
        app_id=message.app_id,
    )
    method = spec.Basic.Publish(exchange=exchange, routing_key=key, mandatory=True)
    most = frame_max - 8
    chunks = [message.body[start : start + most] for start in range(0, len(message.body), most)]
    return b"".join(
        [
            frame.Method(channel, method).marshal(),
            frame.Header(channel, len(message.body), properties).marshal(),
            *(frame.Body(channel, chunk).marshal() for chunk in chunks),
        ]
    )


@given(CHANNELS, SHORT, SHORT, MESSAGES, st.sampled_from([4096, 8192, 131072]))
@example(1, "e", "k", EVERY_PROPERTY, 4096)
@example(1, "", "", Message(b"", {}), 4096)
@example(1, "", "", Message(b"x" * 4088, {}), 4096)  # exactly one frame
@example(1, "", "", Message(b"x" * 4089, {}), 4096)
def test_publish_encodes_like_pika(
    channel: int, exchange: str, key: str, message: Message, frame_max: int
) -> None:
    ours = encode.publish(channel, exchange, key, message, frame_max)
    assert ours == by_pika(channel, exchange, key, message, frame_max)


@settings(max_examples=30)
@given(CHANNELS, TAGS)
def test_ack_encodes_like_pika(channel: int, tag: int) -> None:
    assert encode.ack(channel, tag) == frame.Method(channel, spec.Basic.Ack(tag)).marshal()


@settings(max_examples=30)
@given(CHANNELS, TAGS, st.booleans())
def test_nack_encodes_like_pika(channel: int, tag: int, requeue: bool) -> None:  # noqa: FBT001 - drawn
    method = spec.Basic.Nack(tag, multiple=False, requeue=requeue)
    assert encode.nack(channel, tag, requeue=requeue) == frame.Method(channel, method).marshal()


@settings(max_examples=30)
@given(CHANNELS, SHORT)
def test_get_encodes_like_pika(channel: int, queue: str) -> None:
    method = spec.Basic.Get(queue=queue, no_ack=False)
    assert encode.get(channel, queue) == frame.Method(channel, method).marshal()


def test_text_that_is_not_utf_8_is_encoded_unchanged() -> None:
    """The properties of a copied message can be any bytes."""
    text = b"\xff\xfe".decode(errors="surrogateescape")
    sent = encode.publish(1, "", "q", Message(b"", {text: text}, text, text, app_id=text), 4096)
    assert sent.count(b"\x02\xff\xfe") == 5  # name, value, and three properties
    assert encode.get(1, text).endswith(b"\x02\xff\xfe\x00\xce")


@pytest.mark.parametrize("text", ["x" * 256, "ü" * 128])
def test_a_short_string_over_255_bytes_is_refused(text: str) -> None:
    """Encoding it with a wrapped length would corrupt the frame."""
    with pytest.raises(ValueError, match="range"):
        encode.get(1, text)
