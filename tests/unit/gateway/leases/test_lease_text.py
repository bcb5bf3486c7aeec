"""The text of a lease, and texts that are not one."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.gateway.leases.lease_text import (
    MAX_CHARACTERS,
    LeaseText,
    NotALease,
    decode,
)

PEERS = st.from_regex(r"[0-9a-f]{16}\.[0-9]{1,9}", fullmatch=True)
TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,200}", fullmatch=True)
IDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    lambda text: len(text.encode()) <= 200
)
TIMES = st.integers(0, (1 << 48) - 1)
LEASES = st.builds(
    LeaseText,
    peer=PEERS,
    topic=TOPICS,
    id=IDS,
    token=st.text(st.characters(exclude_categories=["Cs"]), max_size=64),
    put_ms=TIMES,
    due_ms=TIMES,
    attempt=st.integers(1, 1 << 40),
    deadline_ms=TIMES,
    nonce=st.text("abcXYZ019-_", max_size=16),
)
LEASE = LeaseText("0123456789abcdef.1", "t", "a", "f00d", 1, 2, 1, 3, "nonce")


@given(LEASES)
def test_a_lease_is_read_as_it_was_written(lease: LeaseText) -> None:
    assert decode(lease.encode()) == lease


@given(LEASES)
def test_the_text_is_safe_in_a_url_and_in_json(lease: LeaseText) -> None:
    text = lease.encode()
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
    assert len(text) <= MAX_CHARACTERS


@given(st.text())
def test_any_text_is_refused_with_our_error(text: str) -> None:
    with pytest.raises(NotALease):
        decode(text)


@given(st.binary())
def test_any_bytes_in_its_place_are_refused(content: bytes) -> None:
    with pytest.raises(NotALease):
        decode(f"1.{base64.urlsafe_b64encode(content).decode().rstrip('=')}")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values, max_size=10) | st.dictionaries(st.text(), values, max_size=3),
)


@given(JSON_VALUES | st.lists(JSON_VALUES, min_size=9, max_size=9))
def test_any_json_in_its_place_is_refused(value: object) -> None:
    with pytest.raises(NotALease):
        decode(_text(value))


@given(st.integers(0, 8), JSON_VALUES)
def test_every_field_is_checked(position: int, value: object) -> None:
    """A changed field is refused, or is a lease that is written in the same way."""
    fields: list[object] = ["0123456789abcdef.1", "t", "a", "f00d", 1, 2, 1, 3, "nonce"]
    fields[position] = value
    try:
        lease = decode(_text(fields))
    except NotALease:
        return
    assert decode(lease.encode()) == lease


@given(LEASES, st.integers(min_value=0), st.characters())
def test_a_text_with_one_character_changed_is_another_lease_or_none(
    lease: LeaseText, position: int, character: str
) -> None:
    text = lease.encode()
    position %= len(text)
    changed = text[:position] + character + text[position + 1 :]
    try:
        found = decode(changed)
    except NotALease:
        return
    assert (found == lease) == (changed == text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.",
        "1." + "A" * (MAX_CHARACTERS + 1),
        "2" + LEASE.encode()[1:],
        LEASE.encode() + "=",
        LEASE.encode() + "\n",
        " " + LEASE.encode(),
        "1." + base64.urlsafe_b64encode(b"[" * 1400).decode(),
        "\ud800",
    ],
)
def test_texts_that_are_almost_a_lease_are_refused(text: str) -> None:
    with pytest.raises(NotALease, match="lease"):
        decode(text)


def test_the_error_does_not_repeat_the_text() -> None:
    """A lease is a secret, and the error is logged."""
    with pytest.raises(NotALease) as refused:
        decode(LEASE.encode()[:-3])
    assert LEASE.encode()[10:30] not in str(refused.value)


def _text(value: object) -> str:
    content = json.dumps(value, ensure_ascii=True).encode()
    return f"1.{base64.urlsafe_b64encode(content).decode().rstrip('=')}"
