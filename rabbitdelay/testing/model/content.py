"""The properties of a message, as the broker keeps them: unchanged, except for a few headers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any, Self

from rabbitdelay.core.amqp import encode, field_table
from rabbitdelay.core.amqp.field_table import Encoded

_CONTENT = Struct(">HHQH")
_LENGTH = Struct(">I")
_ORDER = (
    encode.CONTENT_TYPE,
    encode.CONTENT_ENCODING,
    encode.HEADERS,
    encode.DELIVERY_MODE,
    encode.PRIORITY,
    encode.CORRELATION_ID,
    encode.REPLY_TO,
    encode.EXPIRATION,
    encode.MESSAGE_ID,
    encode.TIMESTAMP,
    encode.TYPE,
    encode.USER_ID,
    encode.APP_ID,
    encode.CLUSTER_ID,
)
"""The flags of the properties, in the order in which the properties follow."""
_SIZES = {encode.DELIVERY_MODE: 1, encode.PRIORITY: 1, encode.TIMESTAMP: 8}


@dataclass(frozen=True, slots=True)
class Content:
    """The properties and the body of a message. Each property is kept as its bytes."""

    properties: Mapping[int, bytes]
    """The properties other than the headers, by their flag."""
    headers: Mapping[str, Encoded]
    has_headers: bool
    body: bytes

    @classmethod
    def of(cls, header: bytes, body: bytes) -> Self:
        """Return the content of a content header's payload and a body."""
        flags = _CONTENT.unpack_from(header)[3]
        offset, properties, headers = _CONTENT.size, dict[int, bytes](), dict[str, Encoded]()
        for flag in _ORDER:
            if not flags & flag:
                continue
            end = _end(flag, header, offset)
            if flag == encode.HEADERS:
                headers = field_table.split(header, offset + _LENGTH.size, end)
            else:
                properties[flag] = header[offset:end]
            offset = end
        return cls(properties, headers, bool(flags & encode.HEADERS), body)

    def header(self) -> bytes:
        """Return the payload of the content header."""
        flags, pieces = 0, []
        for flag in _ORDER:
            piece = self._table() if flag == encode.HEADERS else self.properties.get(flag)
            if piece is not None:
                flags |= flag
                pieces.append(piece)
        content = _CONTENT.pack(encode.BASIC, 0, len(self.body), flags)
        return content + b"".join(pieces)

    def text(self, flag: int) -> str | None:
        """Return a text property; None if the message does not have it."""
        piece = self.properties.get(flag)
        return None if piece is None else field_table.known_text(piece[1:])

    def with_headers(self, changed: Mapping[str, Any]) -> Self:
        """Return a copy with these headers added or replaced."""
        return replace(self, headers={**self.headers, **changed}, has_headers=True)

    def without_expiration(self) -> Self:
        """Return a copy that does not expire by itself."""
        properties = {
            flag: data for flag, data in self.properties.items() if flag != encode.EXPIRATION
        }
        return replace(self, properties=properties)

    def _table(self) -> bytes | None:
        if not self.has_headers:
            return None
        table = field_table.encode(self.headers)
        return _LENGTH.pack(len(table)) + table


def _end(flag: int, data: bytes, offset: int) -> int:
    """Return where a property ends."""
    if flag == encode.HEADERS:
        return offset + _LENGTH.size + int(_LENGTH.unpack_from(data, offset)[0])
    size = _SIZES.get(flag)
    return offset + (1 + data[offset] if size is None else size)
