"""Write deliveries as the frames that a broker sends."""

from struct import Struct

from rabbitdelay.core.amqp import encode, field_table
from rabbitdelay.testing.model.content import Content
from rabbitdelay.testing.model.events import Delivered, Empty, ReturnedMessage

_FRAME = Struct(">BHI")
_METHOD = Struct(">HH")
_TAG = Struct(">QB")
_COUNT = Struct(">I")
_CODE = Struct(">H")
_DELIVER, _GET_OK, _GET_EMPTY, _RETURN = 60, 71, 72, 50
NO_ROUTE, NO_ROUTE_TEXT = 312, "NO_ROUTE"
FRAME_MAX = 131_072


def delivered(event: Delivered) -> bytes:
    """Return the frames of a delivery, or of the answer to a basic.get."""
    message = event.message
    tag = _TAG.pack(event.delivery_tag, event.is_redelivered)
    where = _short(message.exchange) + _short(message.routing_key)
    if event.consumer_tag is None:
        method = _METHOD.pack(encode.BASIC, _GET_OK) + tag + where + _COUNT.pack(event.left)
    else:
        method = _METHOD.pack(encode.BASIC, _DELIVER) + _short(event.consumer_tag) + tag + where
    return _method(event.channel, method) + content(event.channel, event.content)


def empty(event: Empty) -> bytes:
    """Return the frame that says that a queue is empty."""
    return _method(event.channel, _METHOD.pack(encode.BASIC, _GET_EMPTY) + _short(""))


def returned(event: ReturnedMessage) -> bytes:
    """Return the frames of a message that could not be routed."""
    message = event.message
    reason = _CODE.pack(NO_ROUTE) + _short(NO_ROUTE_TEXT)
    where = _short(message.exchange) + _short(message.routing_key)
    method = _METHOD.pack(encode.BASIC, _RETURN) + reason + where
    return _method(event.channel, method) + content(event.channel, message.content)


def content(channel: int, found: Content) -> bytes:
    """Return the frames of the properties and the body."""
    header, body = found.header(), found.body
    pieces = [_frame(encode.HEADER, channel, header)]
    most = FRAME_MAX - encode.FRAME_OVERHEAD_BYTES
    starts = range(0, len(body), most)
    pieces += [_frame(encode.BODY, channel, body[start : start + most]) for start in starts]
    return b"".join(pieces)


def _method(channel: int, payload: bytes) -> bytes:
    return _frame(encode.METHOD, channel, payload)


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + encode.END


def _short(text: str) -> bytes:
    return field_table.short_text(text)
