"""Tokens: found by their hash, in constant time, until they expire."""

import hmac
from datetime import date, timedelta
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.gateway.access.rights import FULL_GRANT
from rabbitdelay.gateway.access.tokens import PREFIX, Token, TokenTable, digest_of, new_token

TODAY = date(2027, 1, 31)


def stored(name: str, text: str, last_day: date | None = None) -> Token:
    return Token(name, FULL_GRANT, digest_of(text.encode()), last_day)


TABLE = TokenTable([stored("a", "first"), stored("b", "second"), stored("c", "third")])


@pytest.mark.parametrize(("text", "name"), [("first", "a"), ("second", "b"), ("third", "c")])
def test_a_token_is_found_by_its_text(text: str, name: str) -> None:
    found = TABLE.find(text.encode(), TODAY)
    assert found is not None
    assert found.name == name


@given(st.binary())
def test_another_text_is_not_a_token(text: bytes) -> None:
    if text not in {b"first", b"second", b"third"}:
        assert TABLE.find(text, TODAY) is None


def test_the_hash_of_a_token_is_not_a_token() -> None:
    assert TABLE.find(digest_of(b"first"), TODAY) is None
    assert TABLE.find(digest_of(b"first").hex().encode(), TODAY) is None


@pytest.mark.parametrize("text", [b"first", b"third", b"unknown"])
def test_every_entry_is_compared_in_constant_time(text: bytes) -> None:
    with mock.patch.object(hmac, "compare_digest", wraps=hmac.compare_digest) as compare:
        TABLE.find(text, TODAY)
    assert compare.call_count == 3


def test_a_token_is_accepted_on_its_last_day_and_not_after() -> None:
    table = TokenTable([stored("a", "first", TODAY)])
    assert table.find(b"first", TODAY) is not None
    assert table.find(b"first", TODAY + timedelta(days=1)) is None


def test_new_tokens_are_random_and_recognisable() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(token.startswith(PREFIX) and len(token) >= 46 for token in tokens)


def test_no_text_of_a_token_shows_its_hash() -> None:
    assert "digest" not in repr(stored("a", "first"))
