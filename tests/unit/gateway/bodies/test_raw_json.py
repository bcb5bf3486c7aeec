"""The members of a JSON object are found as json.loads finds them, and keep their text."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.gateway.bodies import raw_json
from rabbitdelay.gateway.problems import MalformedRequest

SPACE = st.text(" \t\n\r", max_size=2)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@st.composite
def written(draw: st.DrawFn) -> tuple[str, dict[str, str]]:
    """Return an object with space anywhere and any escapes, and the text of each member."""
    found: dict[str, str] = {}
    parts = []
    for name, value in draw(st.dictionaries(st.text(max_size=4), VALUES, max_size=4)).items():
        quoted, found[name] = (
            json.dumps(one, ensure_ascii=draw(st.booleans()), allow_nan=False)
            for one in (name, value)
        )
        parts.append(f"{draw(SPACE)}{quoted}{draw(SPACE)}:{draw(SPACE)}{found[name]}{draw(SPACE)}")
    inside = ",".join(parts) or draw(SPACE)
    return f"{draw(SPACE)}{{{inside}}}{draw(SPACE)}", found


@given(written())
def test_members_have_the_text_that_was_written(case: tuple[str, dict[str, str]]) -> None:
    text, expected = case
    assert raw_json.members(text) == expected
    assert _values(text) == json.loads(text)


@given(st.lists(VALUES, max_size=4), SPACE)
def test_elements_have_the_text_that_was_written(values: list[Any], space: str) -> None:
    texts = [json.dumps(value) for value in values]
    text = f"[{space}{f'{space},{space}'.join(texts)}{space}]"
    assert raw_json.elements(text, "jobs", 100) == texts


@given(written(), st.integers(0, 200), st.sampled_from([*'{}[]",:\\ x1', "\x00"]), st.booleans())
def test_what_json_does_not_accept_is_refused(
    case: tuple[str, dict[str, str]],
    place: int,
    character: str,
    replaces: bool,  # noqa: FBT001 - hypothesis draws it
) -> None:
    """One character of a valid object is inserted or replaced."""
    text, _ = case
    place %= len(text) + 1
    changed = text[:place] + character + text[place + replaces :]
    try:
        expected = json.loads(changed, object_pairs_hook=_distinct)
    except ValueError:
        expected = None
    if isinstance(expected, dict):
        assert _values(changed) == expected
    else:
        with pytest.raises(MalformedRequest):
            _values(changed)


def _values(text: str) -> dict[str, Any]:
    return {name: raw_json.value(one) for name, one in raw_json.members(text).items()}


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a member twice")
    return dict(pairs)


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": -Infinity}', '{"a": 1, "a": 2}', "", "[]"])
def test_more_than_json_is_refused(text: str) -> None:
    with pytest.raises(MalformedRequest):
        raw_json.members(text)


def test_a_nested_member_that_is_given_twice_is_refused_when_it_is_read() -> None:
    text = raw_json.members('{"headers": {"a": 1, "a": 2}}')["headers"]
    with pytest.raises(MalformedRequest, match="'a' is given twice"):
        raw_json.value(text)


@given(st.binary(max_size=40) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_only_what_json_reads_is_json(content: bytes) -> None:
    def refuse(text: str) -> None:
        raise ValueError(text)

    try:
        json.loads(content.decode("utf-8"), parse_constant=refuse)
        expected = True
    except (ValueError, RecursionError):
        expected = False
    assert raw_json.is_json(content) is expected


@pytest.mark.parametrize("digits", [5_000, 200_000])
def test_a_long_number_in_a_body_is_neither_converted_nor_refused(digits: int) -> None:
    content = b'{"body":' + b"9" * digits + b"}"
    assert raw_json.members(content) == {"body": "9" * digits}
