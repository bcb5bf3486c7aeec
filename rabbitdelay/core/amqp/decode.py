"""Decode the bytes that a broker sends into whole messages.

Only deliveries, the replies to basic.get and messages that the broker returns as unroutable are
decoded; every other frame is passed on unchanged, for the client library. pika is not used for
messages because it needs about twice as long for each, and because a header that it cannot decode
ends the connection, again on every redelivery.

A message whose properties cannot be decoded still becomes a Delivery, which can be acknowledged or
rejected: `problem` says what is wrong. A frame that no broker would send is passed on too: pika
raises an error for it, and the connection is reopened.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.amqp import field_table as table
from rabbitdelay.core.jobs.envelope import Message

_FRAME = Struct(">BHI")
_METHOD = Struct(">HH")
_TAG = Struct(">Q?")
_CONTENT = Struct(">HHQH")
_SIZE_BYTES = 4
_TIMESTAMP_BYTES = 8
_HEADER_BYTES = 7
_PROTOCOL_HEADER = ord("A")
_END = encode.END[0]
_CUT_OFF = "properties are cut off"

_RETURN, _DELIVER, _GET_OK, _GET_EMPTY = (
    _METHOD.pack(encode.BASIC, number) for number in (50, 60, 71, 72)
)
_RETURN_TEXT_AT = 6
"""Offset of the reply text in a basic.return, after the method and the reply code."""


@dataclass(slots=True)
class Delivery:
    """A message as the broker delivered it.

    Treat as immutable. Not `frozen=True`, because that makes construction slower.
    """

    channel: int
    consumer_tag: str | None
    """The consumer's tag; None for a reply to basic.get."""
    tag: int
    redelivered: bool
    message: Message
    problem: str | None = None
    """Why the properties could not be decoded; None if they could."""
    exchange: str = ""
    """The exchange that the message was published to; only decoded for basic.get."""
    routing_key: str = ""
    method: bytes = field(default=b"", compare=False, repr=False)
    """The method frame of a consumed message, for `published_to`."""
    header: bytes = field(default=b"", compare=False, repr=False)
    """The content header as received, for `original`."""


@dataclass(frozen=True, slots=True)
class GetEmpty:
    """The reply to a basic.get from an empty queue."""

    channel: int


@dataclass(frozen=True, slots=True)
class Returned:
    """A message that the broker could not route.

    The confirm that follows it carries no information.
    """

    channel: int
    text: str
    """The broker's reason."""
    exchange: str
    routing_key: str
    message_id: str | None
    headers: Mapping[str, table.Encoded]
    """The headers as they were sent. No value is decoded, so that none can be a problem."""


@dataclass(frozen=True, slots=True)
class Other:
    """Any other frame, undecoded."""

    frame: bytes


Inbound = Delivery | GetEmpty | Returned | Other


@dataclass(slots=True)
class _Partial:
    """A message that has not been received completely."""

    consumer_tag: str | None
    tag: int
    redelivered: bool
    exchange: str = ""
    routing_key: str = ""
    method: bytes = b""
    header: bytes = b""
    flags: int = 0
    """The property flags of the content header."""
    missing: int = -1
    """Remaining bytes of the body; negative before the content header."""
    returned_because: str | None = None
    """Why the broker returned the message; None if it did not."""
    body: tuple[bytes, ...] = ()


class Deliveries:
    """Decoder of the bytes that one connection receives."""

    def __init__(self) -> None:
        self._buffer = b""
        self._partial: dict[int, _Partial] = {}

    def feed(self, data: bytes) -> Iterator[Inbound]:
        """Take the next bytes; yield the deliveries and other frames that are complete."""
        buffer = self._buffer + data if self._buffer else data
        offset, size = 0, len(buffer)
        while size - offset >= _HEADER_BYTES:
            kind, channel, length = _FRAME.unpack_from(buffer, offset)
            if kind == _PROTOCOL_HEADER:  # sent by a broker of another version before it closes
                length = 0
            end = offset + _HEADER_BYTES + length + 1
            if end > size:
                break
            found: Inbound | None = _NOT_OURS
            if buffer[end - 1] == _END:
                found = self._frame(kind, channel, buffer[offset + _HEADER_BYTES : end - 1])
            if found is _NOT_OURS:
                yield Other(buffer[offset:end])
            elif found is not None:
                yield found
            offset = end
        self._buffer = buffer[offset:]

    def _frame(self, kind: int, channel: int, payload: bytes) -> "Inbound | None":
        try:
            if kind == encode.METHOD:
                return self._method(channel, payload)
            partial = self._partial.get(channel)
            return _NOT_OURS if partial is None else self._content(kind, channel, payload, partial)
        except (IndexError, StructError):  # the payload is shorter than its method or header
            return _NOT_OURS

    def _content(
        self, kind: int, channel: int, payload: bytes, partial: _Partial
    ) -> "Inbound | None":
        if kind == encode.HEADER:
            _, _, partial.missing, partial.flags = _CONTENT.unpack_from(payload)
            partial.header, partial.body = payload, ()
        elif kind == encode.BODY and len(payload) <= partial.missing:
            partial.body += (payload,)
            partial.missing -= len(payload)
        else:
            return _NOT_OURS
        return self._whole(channel, partial) if partial.missing == 0 else None

    def _method(self, channel: int, payload: bytes) -> "Inbound | None":
        method = payload[:4]
        if method == _DELIVER:
            after = 5 + payload[4]
            tag, redelivered = _TAG.unpack_from(payload, after)
            consumer_tag = table.known_text(payload[5:after])
            self._partial[channel] = _Partial(consumer_tag, tag, redelivered, method=payload)
            return None
        if method == _GET_OK:
            tag, redelivered = _TAG.unpack_from(payload, 4)
            where = _Reader(payload, 4 + _TAG.size)
            exchange, routing_key = where.text(1) or "", where.text(1) or ""
            self._partial[channel] = _Partial(None, tag, redelivered, exchange, routing_key)
            return None
        if method == _RETURN:
            where = _Reader(payload, _RETURN_TEXT_AT)
            text, exchange, routing_key = (where.text(1) or "" for _ in range(3))
            self._partial[channel] = _Partial(
                consumer_tag=None,
                tag=0,
                redelivered=False,
                exchange=exchange,
                routing_key=routing_key,
                returned_because=text,
            )
            return None
        return GetEmpty(channel) if method == _GET_EMPTY else _NOT_OURS

    def _whole(self, channel: int, partial: _Partial) -> Delivery | Returned:
        del self._partial[channel]
        if partial.returned_because is not None:
            return _returned(channel, partial, partial.returned_because)
        body = b"".join(partial.body)
        problem: str | None = None
        try:
            message = _message(partial.header, partial.flags, body)
        except table.Undecodable as error:
            message, problem = Message(body, {}), str(error)
        return Delivery(
            channel,
            partial.consumer_tag,
            partial.tag,
            partial.redelivered,
            message,
            problem,
            partial.exchange,
            partial.routing_key,
            partial.method,
            partial.header,
        )


_NOT_OURS = Other(b"")


def published_to(delivery: Delivery) -> tuple[str, str]:
    """Return the exchange and the routing key of a message, consumed or fetched by basic.get."""
    if not delivery.method:
        return delivery.exchange, delivery.routing_key
    where = _Reader(delivery.method, 5 + delivery.method[4] + _TAG.size)
    return where.text(1) or "", where.text(1) or ""


def original(delivery: Delivery) -> Message:
    """Return the message with its headers as raw bytes, so that a copy keeps them unchanged.

    The message has no expiration, user id or cluster id, because a copy must not carry them.
    """
    header = delivery.header
    flags = _CONTENT.unpack_from(header)[3]
    return _read_all(_SplittingReader(header, _CONTENT.size), flags, delivery.message.body)


def _returned(channel: int, partial: _Partial, text: str) -> Returned:
    try:
        reader = _SplittingReader(partial.header, _CONTENT.size)
        message = _read_all(reader, partial.flags, b"")
    except table.Undecodable:  # not what was sent
        message = Message(b"", {})
    return Returned(
        channel,
        text,
        partial.exchange,
        partial.routing_key,
        message.message_id,
        message.headers,
    )


def _message(header: bytes, flags: int, body: bytes) -> Message:
    if flags == _COMMON:
        try:
            common = _common_message(header, body)
        except IndexError:
            raise table.Undecodable(_CUT_OFF) from None
        if common is not None:
            return common
    return _read_all(_Reader(header, _CONTENT.size), flags, body)


_COMMON = (
    encode.CONTENT_TYPE
    | encode.HEADERS
    | encode.DELIVERY_MODE
    | encode.MESSAGE_ID
    | encode.TIMESTAMP
)
"""Flags of the properties that nearly every job has; exactly these are decoded by a fast path."""


def _common_message(header: bytes, body: bytes) -> Message | None:
    """Decode the properties of `_COMMON`; return None if they do not fill the header exactly."""
    type_end = _CONTENT.size + 1 + header[_CONTENT.size]
    table_start = type_end + _SIZE_BYTES
    table_end = table_start + int.from_bytes(header[type_end:table_start])
    id_start = table_end + 2  # after the delivery mode and the length of the id
    if len(header) < id_start or len(header) != id_start + header[id_start - 1] + _TIMESTAMP_BYTES:
        return None
    id_end = id_start + header[id_start - 1]
    return Message(
        body,
        table.decode(header, table_start, table_end),
        header[id_start:id_end].decode(errors=table.TEXT_ERRORS),
        table.known_text(header[_CONTENT.size + 1 : type_end]),
        int.from_bytes(header[id_end:]),
    )


def _read_all(reader: "_Reader", flags: int, body: bytes) -> Message:
    """Decode the properties; raise Undecodable if they are longer than the header."""
    try:
        message = _read_properties(reader, flags, body)
    except IndexError:
        raise table.Undecodable(_CUT_OFF) from None
    if reader.is_beyond_the_end:
        raise table.Undecodable(_CUT_OFF)
    return message


def _read_properties(reader: "_Reader", flags: int, body: bytes) -> Message:
    """Decode the properties, in the order in which AMQP lists them."""
    content_type = reader.text(flags & encode.CONTENT_TYPE)
    content_encoding = reader.text(flags & encode.CONTENT_ENCODING)
    headers = reader.table() if flags & encode.HEADERS else {}
    reader.octet(flags & encode.DELIVERY_MODE)
    priority = reader.octet(flags & encode.PRIORITY)
    correlation_id = reader.text(flags & encode.CORRELATION_ID)
    reply_to = reader.text(flags & encode.REPLY_TO)
    reader.text(flags & encode.EXPIRATION)
    message_id = reader.text(flags & encode.MESSAGE_ID)
    timestamp_s = reader.timestamp() if flags & encode.TIMESTAMP else None
    kind = reader.text(flags & encode.TYPE)
    reader.text(flags & encode.USER_ID)
    app_id = reader.text(flags & encode.APP_ID)
    return Message(
        body,
        headers,
        message_id,
        content_type,
        timestamp_s,
        reply_to,
        correlation_id,
        content_encoding,
        priority,
        kind,
        app_id,
    )


class _Reader:
    """Reads the properties of a message one after another."""

    __slots__ = ("_data", "offset")

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self.offset = offset

    @property
    def is_beyond_the_end(self) -> bool:
        return self.offset > len(self._data)

    def text(self, present: int) -> str | None:
        if not present:
            return None
        start = self.offset + 1
        self.offset = start + self._data[start - 1]
        return self._data[start : self.offset].decode(errors=table.TEXT_ERRORS)

    def octet(self, present: int) -> int | None:
        if not present:
            return None
        self.offset += 1
        return self._data[self.offset - 1]

    def timestamp(self) -> int:
        start, self.offset = self.offset, self.offset + _TIMESTAMP_BYTES
        return int.from_bytes(self._data[start : self.offset])

    def table(self) -> Mapping[str, object]:
        start = self._begin_table()
        return table.decode(self._data, start, self.offset)

    def _begin_table(self) -> int:
        """Return the offset of a table's content, and move the reader past the table."""
        start = self.offset + _SIZE_BYTES
        self.offset = start + int.from_bytes(self._data[self.offset : start])
        return start


class _SplittingReader(_Reader):
    """Reads a table as the bytes of its values."""

    __slots__ = ()

    def table(self) -> Mapping[str, object]:
        start = self._begin_table()
        return table.split(self._data, start, self.offset)
