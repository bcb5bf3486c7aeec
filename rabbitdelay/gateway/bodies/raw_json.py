"""Read JSON requests as raw slices, so that a job's body is passed on byte for byte.

Parsing a body and writing it again would change it: a 64-bit number, the order of members, the way
a number is written.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from rabbitdelay.gateway.problems import InvalidRequest, MalformedRequest

MAX_MEMBERS = 1_000
"""Members of one object outside of job bodies. No request needs a tenth of them, and each one that
is unknown takes time, in which the gateway serves no other client."""
_SHOWN = 60
"""Number of characters of a name that an error quotes."""
_SPACE = re.compile(r"[ \t\n\r]*")


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON value")


def _same(text: str) -> str:
    return text


_SCANNER = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_same, parse_float=_same)
"""Finds the end of a value. Numbers stay text: converting a long one takes quadratic time."""


def members(content: bytes) -> dict[str, str]:
    """Return the members of a JSON object, each value as the text that the request has.

    Raises:
        MalformedRequest: The text is not a JSON object in UTF-8, or has a member twice.
    """
    try:
        return dict(_distinct(_members(_decoded(content))))
    except RecursionError:
        raise MalformedRequest("the request is nested too deeply") from None
    except ValueError as error:
        raise MalformedRequest(f"the request is not valid JSON: {error}") from None


def elements(text: str, what: str, most: int) -> list[str]:
    """Return the elements of a JSON array, each as the text that the request has.

    The text is known to be valid JSON.

    Raises:
        InvalidRequest: It is not an array, or has more than `most` elements.
    """
    if not text.startswith("["):
        raise InvalidRequest(f"{what}: must be an array")
    found: list[str] = []
    position = _after_space(text, 1)
    while text[position] != "]":
        begin = position
        if len(found) == most:
            raise InvalidRequest(f"{what}: more than {most:,}")
        _, end = _SCANNER.raw_decode(text, begin)
        found.append(text[begin:end])
        position = _after_space(text, end)
        if text[position] == ",":
            position = _after_space(text, position + 1)
    return found


def utf_8(text: str, what: str) -> bytes:
    """Return a text in UTF-8; raise InvalidRequest if it has half of a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what}: has half of a surrogate pair") from None


def value(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of a member's text.

    Raises:
        MalformedRequest: A number has too many digits, or an object a member twice.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_as_dict)
    except RecursionError:
        raise MalformedRequest("the request is nested too deeply") from None
    except ValueError as error:
        raise MalformedRequest(f"the request is not valid JSON: {error}") from None


def is_json(content: bytes) -> bool:
    """Whether bytes are exactly one JSON value in UTF-8."""
    try:
        text = content.decode()
        _, end = _SCANNER.raw_decode(text, _after_space(text, 0))
    except (ValueError, RecursionError):
        return False
    return _after_space(text, end) == len(text)


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"the request is not UTF-8 (byte {error.start})") from None


def _distinct(pairs: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for name, text in pairs:
        if name in seen:
            raise MalformedRequest(f"member {name[:_SHOWN]!r} is given twice")
        if len(seen) == MAX_MEMBERS:
            raise MalformedRequest(f"an object has more than {MAX_MEMBERS:,} members")
        seen.add(name)
        yield name, text


def _as_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(_distinct(iter(pairs)))


def _members(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and raw value of each member of the only object in a text."""
    position = _after(text, 0, "{", "an object must begin with {")
    if text[position : position + 1] == "}":
        _require_end(text, position + 1)
        return
    while True:
        if text[position : position + 1] != '"':
            raise ValueError(f"a member's name is expected at character {position}")
        name, position = _SCANNER.raw_decode(text, position)
        begin = _after(text, position, ":", "a colon is expected")
        _, end = _SCANNER.raw_decode(text, begin)
        yield name, text[begin:end]
        position = _after_space(text, end)
        if text[position : position + 1] == "}":
            _require_end(text, position + 1)
            return
        position = _after(text, position, ",", "a comma or } is expected")


def _after(text: str, position: int, character: str, complaint: str) -> int:
    """Return the position after a character and the space around it."""
    position = _after_space(text, position)
    if text[position : position + 1] != character:
        raise ValueError(f"{complaint} at character {position}")
    return _after_space(text, position + 1)


def _after_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return position if found is None else found.end()


def _require_end(text: str, position: int) -> None:
    position = _after_space(text, position)
    if position != len(text):
        raise ValueError(f"text follows the object at character {position}")
