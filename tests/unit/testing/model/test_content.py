"""The properties of a message are kept as they are, byte for byte."""

from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.testing.model.content import Content
from rabbitdelay.testing.wire.inbound import Frames, Publish

TEXT = st.none() | st.text(max_size=20)
VALUES = st.integers(-(2**63), 2**63 - 1) | st.text(max_size=9) | st.booleans() | st.none()
MESSAGES = st.builds(
    Message,
    st.binary(max_size=300),
    st.dictionaries(st.text(max_size=9), VALUES, max_size=4),
    message_id=TEXT,
    content_type=TEXT,
    timestamp_s=st.none() | st.integers(0, 2**64 - 1),
    reply_to=TEXT,
    correlation_id=TEXT,
    content_encoding=TEXT,
    priority=st.none() | st.integers(0, 255),
    type=TEXT,
    app_id=TEXT,
)


@given(MESSAGES, st.integers(100, 200))
def test_a_published_message_is_read_and_written_without_a_change(
    message: Message, frame_max: int
) -> None:
    data = encode.publish(3, "exchange", "key", message, frame_max)
    (found,) = Frames().feed(data)
    assert isinstance(found, Publish)
    assert (found.channel, found.exchange, found.routing_key) == (3, "exchange", "key")
    assert (found.is_mandatory, found.body) == (True, message.body)
    assert Content.of(found.header, found.body).header() == found.header


@given(MESSAGES, st.integers(1, 40))
def test_frames_may_arrive_in_pieces(message: Message, size: int) -> None:
    data = encode.publish(1, "", "q", message, 131_072) + encode.ack(1, 7)
    frames = Frames()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    found = [one for piece in pieces for one in frames.feed(piece)]
    assert found == list(Frames().feed(data))
    assert len(found) == 2
