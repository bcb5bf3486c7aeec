"""Rights, and the topics and ids that they cover."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.gateway.access.caller import ANONYMOUS, Caller
from rabbitdelay.gateway.access.rights import (
    RIGHTS,
    Grant,
    Patterns,
    Right,
    read_ids,
    read_rights,
    read_topics,
)
from rabbitdelay.gateway.problems import AccessRefused

ORDERS = Caller(
    "orders", Grant(frozenset({"put"}), read_topics("order*,mail"), read_ids("order-*"))
)
PUT_ALL = Caller("all", Grant(frozenset({"put"}), read_topics("*")))


@pytest.mark.parametrize("topic", ["order", "orderclose", "order.close", "mail"])
def test_a_pattern_covers_its_topics(topic: str) -> None:
    ORDERS.require("put", topic)


@pytest.mark.parametrize(
    "topic", ["", "orde", "Order", "xorder", "mails", "mail.order", "*", "mail,order", "\0order"]
)
def test_a_pattern_does_not_cover_other_topics(topic: str) -> None:
    with pytest.raises(AccessRefused):
        ORDERS.require("put", topic)


@pytest.mark.parametrize("right", ["consume", "admin"])
def test_no_right_includes_another(right: Right) -> None:
    with pytest.raises(AccessRefused, match=right):
        PUT_ALL.require(right, "mail")
    with pytest.raises(AccessRefused, match=right):
        PUT_ALL.require_id(right, "order-1")


def test_a_request_without_a_topic_needs_a_right_on_every_topic() -> None:
    PUT_ALL.require("put", None)
    with pytest.raises(AccessRefused, match="only on some"):
        ORDERS.require("put", None)


def test_an_id_needs_a_right_on_every_topic_or_on_the_id() -> None:
    """Ids are shared by all topics: a delete of `mail-1` may be that of another topic's job."""
    PUT_ALL.require_id("put", "mail-1")
    ORDERS.require_id("put", "order-1")
    with pytest.raises(AccessRefused, match="shared by all topics"):
        ORDERS.require_id("put", "mail-1")


def test_topics_do_not_cover_ids_of_the_same_name() -> None:
    caller = Caller("mail", Grant(frozenset({"put"}), read_topics("mail*")))
    with pytest.raises(AccessRefused):
        caller.require_id("put", "mail-1")


def test_a_refusal_does_not_repeat_what_the_caller_sent() -> None:
    with pytest.raises(AccessRefused) as refused:
        ORDERS.require("put", "\x1b[31mforged line")
    assert "forged" not in str(refused.value)


def test_a_gateway_without_tokens_allows_everything() -> None:
    for right in RIGHTS:
        ANONYMOUS.require(right, None)
        ANONYMOUS.require(right, "any")
        ANONYMOUS.require_id(right, "any")


@given(st.text(), st.text(alphabet="ab*", max_size=3))
def test_a_pattern_is_a_beginning_and_nothing_else(name: str, pattern: str) -> None:
    starred = pattern.endswith("*")
    expected = name[: len(pattern) - 1] == pattern[:-1] if starred else name == pattern
    assert (name in Patterns((pattern,))) == expected


@pytest.mark.parametrize("text", ["", "put,", "put consume", "PUT", "put;admin", "*", "put,put "])
def test_invalid_rights_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfiguration, match="put, consume, admin"):
        read_rights(text)


@pytest.mark.parametrize("text", ["", "a,", "a*b", "**", "ä", "a b", "a/b", "a\n", "?"])
def test_invalid_patterns_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfiguration, match="order\\*"):
        read_topics(text)


@pytest.mark.parametrize("text", ["", "a,", "a*b", "a b", "a;b", "a#b", "a\x7f", "ä"])
def test_invalid_patterns_of_ids_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfiguration, match="order-\\*"):
        read_ids(text)


@pytest.mark.parametrize("text", ["order-*", "a,b", "urn:x/1", '"quoted"', "a+b-c.d<e>", "*"])
def test_ids_may_have_any_visible_character_that_separates_nothing(text: str) -> None:
    assert read_ids(text).texts == tuple(text.split(","))
