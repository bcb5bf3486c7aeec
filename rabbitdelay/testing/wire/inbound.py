"""Read what a client sends as frames: published messages, settlements and basic.get.

The engine encodes these itself, so this file also checks that what it writes can be read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from rabbitdelay.core.amqp import encode, field_table

_FRAME = Struct(">BHI")
_METHOD = Struct(">HH")
_SETTLE = Struct(">QB")
_SIZE = Struct(">HHQ")
_HEADER_BYTES = 7
REJECT = 90
_MULTIPLE, _REQUEUE, _NO_ACK = 0b01, 0b10, 0b1


@dataclass(frozen=True, slots=True)
class Publish:
    """A published message."""

    channel: int
    exchange: str
    routing_key: str
    is_mandatory: bool
    header: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Settle:
    """A basic.ack, basic.nack or basic.reject."""

    channel: int
    method: int
    """The method id of the three."""
    tag: int
    multiple: bool
    requeue: bool


@dataclass(frozen=True, slots=True)
class Get:
    """A basic.get."""

    channel: int
    queue: str
    acknowledges: bool


@dataclass(frozen=True, slots=True)
class Other:
    """Any other frame."""

    frame: bytes


@dataclass(slots=True)
class _Partial:
    exchange: str
    routing_key: str
    is_mandatory: bool
    header: bytes = b""
    missing: int = -1
    body: bytes = b""


Inbound = Publish | Settle | Get | Other


class Frames:
    """Decoder of the bytes that one client sends."""

    def __init__(self) -> None:
        self._buffer = b""
        self._partial: dict[int, _Partial] = {}

    def feed(self, data: bytes) -> Iterator[Inbound]:
        """Take the next bytes; yield what is complete."""
        buffer = self._buffer + data if self._buffer else data
        offset = 0
        while len(buffer) - offset >= _HEADER_BYTES:
            kind, channel, length = _FRAME.unpack_from(buffer, offset)
            end = offset + _HEADER_BYTES + length + 1
            if end > len(buffer):
                break
            payload = buffer[offset + _HEADER_BYTES : end - 1]
            found = self._frame(kind, channel, payload)
            if found is not None:
                yield found if found is not _OTHER else Other(buffer[offset:end])
            offset = end
        self._buffer = buffer[offset:]

    def _frame(self, kind: int, channel: int, payload: bytes) -> Inbound | None:
        if kind == encode.METHOD:
            class_id, method = _METHOD.unpack_from(payload)
            return self._method(channel, method, payload) if class_id == encode.BASIC else _OTHER
        partial = self._partial.get(channel)
        if partial is None:
            return _OTHER
        if kind == encode.HEADER:
            partial.header, partial.missing = payload, _SIZE.unpack_from(payload)[2]
        else:
            partial.body += payload
            partial.missing -= len(payload)
        return self._whole(channel, partial) if not partial.missing else None

    def _method(self, channel: int, method: int, payload: bytes) -> Inbound | None:
        match method:
            case encode.PUBLISH:
                exchange, after = _short(payload, 6)
                routing_key, after = _short(payload, after)
                is_mandatory = bool(payload[after] & encode.MANDATORY)
                self._partial[channel] = _Partial(exchange, routing_key, is_mandatory)
                return None
            case encode.GET:
                queue, after = _short(payload, 6)
                return Get(channel, queue, not payload[after] & _NO_ACK)
        if method in (encode.ACK, encode.NACK, REJECT):
            return _settle(channel, method, *_SETTLE.unpack_from(payload, 4))
        return _OTHER

    def _whole(self, channel: int, partial: _Partial) -> Publish:
        del self._partial[channel]
        return Publish(
            channel,
            partial.exchange,
            partial.routing_key,
            partial.is_mandatory,
            partial.header,
            partial.body,
        )


_OTHER = Other(b"")


def _settle(channel: int, method: int, tag: int, bits: int) -> Settle:
    """Return a settlement. Only a basic.reject has the bit for requeueing in the first place."""
    if method == REJECT:
        return Settle(channel, method, tag, multiple=False, requeue=bool(bits & 1))
    requeue = bool(bits & _REQUEUE)
    return Settle(channel, method, tag, multiple=bool(bits & _MULTIPLE), requeue=requeue)


def _short(payload: bytes, offset: int) -> tuple[str, int]:
    """Return a short string and the offset after it."""
    end = offset + 1 + payload[offset]
    return field_table.known_text(payload[offset + 1 : end]), end
