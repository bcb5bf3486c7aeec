"""Read JSON requests as raw slices, so that a job's body is passed on byte for byte.

Parsing a body and writing it again would change it: a 64-bit number, the order of members, the way
a number is written.
"""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NoReturn

from rabbitdelay.gateway.problems import InvalidRequest, MalformedRequest

MAX_MEMBERS = 1_000
"""Members of one object outside of job bodies. No request needs a tenth of them, and each one that
is unknown takes time, in which the gateway serves no other client."""
_SHOWN = 60
"""Number of characters of a name that an error quotes."""
_SPACE = re.compile(r"[ \t\n\r]*")
_NAME = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*')
"""The name of a member that has no escapes, and what follows up to its value."""
_COMMA = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON value")


def _same(text: str) -> str:
    return text


_SCANNER = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_same, parse_float=_same)
"""Finds the end of a value. Numbers stay text: converting a long one takes quadratic time."""


def members(content: bytes | str) -> dict[str, str]:
    """Return the members of a JSON object, each value as the text that the request has.

    Raises:
        MalformedRequest: The text is not a JSON object in UTF-8, or has a member twice.
    """
    try:
        text = content if isinstance(content, str) else _decoded(content)
        return _as_dict(list(islice(_members(text), MAX_MEMBERS + 1)))
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
        comma = _COMMA.match(text, end)
        position = _after_space(text, end) if comma is None else comma.end()
    return found


def utf_8(text: str, what: str) -> bytes:
    """Return a text in UTF-8; raise InvalidRequest if it has half of a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what}: has half of a surrogate pair") from None


def value(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of a member's text, as `members` returns it.

    Raises:
        MalformedRequest: A number has too many digits, or an object a member twice.
    """
    try:
        return _DECODER.raw_decode(text)[0]
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


def _as_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_MEMBERS:
        raise MalformedRequest(f"an object has more than {MAX_MEMBERS:,} members")
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise MalformedRequest(f"member {twice[:_SHOWN]!r} is given twice")
    return found


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_as_dict)
"""Built once: json.loads builds a decoder for each call that has such hooks."""


def _members(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and raw value of each member of the only object in a text."""
    position = _after(text, 0, "{", "an object must begin with {")
    if text[position : position + 1] == "}":
        _require_end(text, position + 1)
        return
    while True:
        name, begin = _name(text, position)
        _, end = _SCANNER.raw_decode(text, begin)
        yield name, text[begin:end]
        comma = _COMMA.match(text, end)
        if comma is None:
            _require_end(text, _after(text, end, "}", "a comma or } is expected"))
            return
        position = comma.end()


def _name(text: str, position: int) -> tuple[str, int]:
    """Return the name of a member, and the position of its value."""
    found = _NAME.match(text, position)
    if found is not None:
        return found[1], found.end()
    if text[position : position + 1] != '"':
        raise ValueError(f"a member's name is expected at character {position}")
    name, position = _SCANNER.raw_decode(text, position)
    return name, _after(text, position, ":", "a colon is expected")


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
