"""Frames, held to pika's own encoder."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec
from pika.compat import long

from rabbitdelay.core import frames
from rabbitdelay.core.envelope import Message

SHORT = st.text(st.characters(codec="utf-8"), max_size=60)
HEADERS = st.dictionaries(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    st.integers(-(1 << 63), (1 << 63) - 1) | st.text(st.characters(codec="utf-8"), max_size=80),
    max_size=8,
)


def by_pika(channel: int, exchange: str, key: str, message: Message, frame_max: int) -> bytes:
    headers: dict[str, Any] = {
        name: long(value) if isinstance(value, int) else value
        for name, value in message.headers.items()
    }
    properties = spec.BasicProperties(
        content_type=message.content_type,
        headers=headers,
        delivery_mode=2,
        message_id=message.message_id,
        timestamp=message.timestamp_s,
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


@given(
    st.integers(1, 65535),
    SHORT,
    SHORT,
    HEADERS,
    SHORT,
    SHORT,
    st.integers(0, 1 << 40),
    st.binary(max_size=20_000),
    st.sampled_from([4096, 8192, 131072]),
)
def test_frames_are_those_of_pika(  # noqa: PLR0917 - one for each part of a publish
    channel: int,
    exchange: str,
    key: str,
    headers: dict[str, Any],
    message_id: str,
    content_type: str,
    timestamp_s: int,
    body: bytes,
    frame_max: int,
) -> None:
    message = Message(body, headers, message_id, content_type, timestamp_s)
    ours = frames.publish(channel, exchange, key, message, frame_max)
    assert ours == by_pika(channel, exchange, key, message, frame_max)
