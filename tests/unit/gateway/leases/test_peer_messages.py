"""Messages between gateways, and those of others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.gateway.leases.peer_messages import (
    MAX_LINE_BYTES,
    Answer,
    Facts,
    NotAMessage,
    Question,
    read_answer,
    read_question,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
QUESTIONS = st.builds(
    Question,
    verb=st.sampled_from(["finish", "release", "touch", "bury", "finish_id", "response"]),
    lease=TEXT,
    id=TEXT,
    delay_ms=st.none() | st.integers(0, 10_000),
    reason=TEXT,
    wait_ms=st.integers(0, 50_000),
)
FACTS = st.builds(
    Facts,
    result=st.sampled_from(["done", "lost", "failed", "unknown", "waiting", "no_response"]),
    detail=TEXT,
    time_left=st.floats(0, 1e6),
    lease=TEXT,
    content_type=TEXT,
)


@given(QUESTIONS)
def test_a_question_is_read_as_it_was_written(question: Question) -> None:
    assert read_question(question.encode()) == question


@given(FACTS, st.binary())
def test_an_answer_is_read_as_it_was_written(facts: Facts, payload: bytes) -> None:
    assert read_answer(Answer(facts, payload).encode()) == Answer(facts, payload)


@given(st.binary())
def test_any_bytes_are_refused_with_our_error(body: bytes) -> None:
    with pytest.raises(NotAMessage):
        read_question(body)
    with pytest.raises(NotAMessage):
        read_answer(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"verb": "delete"}',
        b'{"verb": "finish", "lease": 1}',
        b'{"verb": "release", "delay_ms": -1}',
        b'{"verb": "release", "delay_ms": true}',
        b'{"verb": "release", "delay_ms": 1e300}',
        b'{"verb": "finish_id", "id": "' + b"x" * 300 + b'"}',
        b'{"verb": "response", "wait_ms": 99999999999}',
        b'{"verb": "finish"}\nmore',
        b'{"verb": "bury", "reason": "' + b"x" * MAX_LINE_BYTES + b'"}',
        b"[" * 100_000,
        b"null",
    ],
    ids=range(11),
)
def test_questions_out_of_bounds_are_refused(body: bytes) -> None:
    with pytest.raises(NotAMessage):
        read_question(body)


def test_the_error_does_not_repeat_the_message() -> None:
    with pytest.raises(NotAMessage) as refused:
        read_question(b'{"verb": "finish", "lease": ["a secret"]}')
    assert "secret" not in str(refused.value)
