"""Raw slices of JSON: the same members as json.loads finds, as they are written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.gateway.bodies import raw_json
from rabbitdelay.gateway.problems import MalformedRequest

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda items: st.lists(items, max_size=4) | st.dictionaries(st.text(), items, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=5)
SPACE = st.text(alphabet=" \t\n\r", max_size=3)


@given(OBJECTS, SPACE, SPACE, SPACE)
def test_members_are_the_texts_of_their_values(
    value: dict[str, Any], before: str, between: str, after: str
) -> None:
    texts = {name: json.dumps(item, ensure_ascii=True) for name, item in value.items()}
    pairs = (f"{json.dumps(name)}{between}:{before}{text}{after}" for name, text in texts.items())
    content = f"{before}{{{between}{f',{after}'.join(pairs)}}}{after}".encode()
    assert raw_json.members(content) == texts


@given(st.lists(VALUES, max_size=5), SPACE)
def test_elements_are_the_texts_of_their_values(values: list[Any], space: str) -> None:
    texts = [json.dumps(value) for value in values]
    array = f"[{space}{f'{space},{space}'.join(texts)}{space}]"
    assert raw_json.elements(array, "jobs", 5) == texts


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


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        members = raw_json.members(content)
    except MalformedRequest:
        return
    assert {name: json.loads(text) for name, text in members.items()} == json.loads(content)


@pytest.mark.parametrize("digits", [5_000, 200_000])
def test_a_long_number_in_a_body_is_neither_converted_nor_refused(digits: int) -> None:
    content = b'{"body":' + b"9" * digits + b"}"
    assert raw_json.members(content) == {"body": "9" * digits}
