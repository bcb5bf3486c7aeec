"""The body of a job as text."""

import json

from rabbitdelay.cli.output.text import counted, printable

_PREVIEW_BYTES = 40
_HEX_ROW = 16
_HEX_ROWS = 16


def preview(body: bytes) -> str:
    """Return the start of a body as text."""
    text = body[:_PREVIEW_BYTES].decode(errors="replace")
    return text + ("…" if len(body) > _PREVIEW_BYTES else "")


def body_text(body: bytes) -> str | None:
    """Return a body as text, or None if it is not plain text."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    has_controls = any(letter < " " and letter not in "\t\n\r" for letter in text)
    return None if has_controls else text


def body_lines(body: bytes) -> list[str]:
    """Return a body as lines: JSON indented, text unchanged, the start of anything else in hex."""
    text = body_text(body)
    if text is None:
        return _hex_lines(body)
    return [printable(line.expandtabs(4)) for line in _indented(text).splitlines()]


def _indented(text: str) -> str:
    try:
        value = json.loads(text, parse_float=_exact, parse_constant=_exact)
        return json.dumps(value, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _exact(number: str) -> float:
    """Parse a number; raise ValueError if Python would write the number differently."""
    if repr(float(number)) != number:
        raise ValueError(number)
    return float(number)


def _hex_lines(body: bytes) -> list[str]:
    shown = body[: _HEX_ROW * _HEX_ROWS]
    rows = [shown[start : start + _HEX_ROW] for start in range(0, len(shown), _HEX_ROW)]
    lines = [
        f"{number * _HEX_ROW:04x}  {row.hex(' '):{3 * _HEX_ROW}} {_ascii(row)}"
        for number, row in enumerate(rows)
    ]
    rest = len(body) - len(shown)
    return [*lines, f"… and {counted(rest, 'byte')} more"] if rest else lines


def _ascii(row: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "·" for byte in row)  # noqa: PLR2004
