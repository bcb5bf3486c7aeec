"""Values of AMQP headers as JSON values."""

from collections.abc import Mapping
from decimal import Decimal

from rabbitdelay.cli.output.bodies import body_text
from rabbitdelay.cli.output.text import moment
from rabbitdelay.core.amqp.field_table import TEXT_ERRORS, Encoded, ScaledInteger, Timestamp


def plain(value: object) -> object:
    """Return a value of an AMQP header as a JSON value."""
    match value:
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case Timestamp() | ScaledInteger() | Encoded():
            return _amqp_value(value)
        case str() | bytes():
            return _utf_8_or_hex(value)
    return value if isinstance(value, int | float | None) else str(value)


def _amqp_value(value: Timestamp | ScaledInteger | Encoded) -> str:
    """Return a value for which Python has no type of its own as text."""
    if isinstance(value, Timestamp):
        return moment(value.seconds * 1000)
    if isinstance(value, ScaledInteger):
        return str(Decimal(value.unscaled).scaleb(-value.scale))
    return f"0x{value.data.hex()}"


def _utf_8_or_hex(value: str | bytes) -> str:
    """Return text from an AMQP header; bytes that are not text as hexadecimal digits."""
    if isinstance(value, bytes):
        return body_text(value) or value.hex()
    data = value.encode(errors=TEXT_ERRORS)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex()
