"""The envelope: what travels."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core import envelope, identity
from rabbitdelay.core.envelope import Message
from rabbitdelay.errors import NotAJob
from rabbitdelay.models import Job

TIME_MS = st.integers(0, (1 << 48) - 1)
NAME = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=50)
JOBS = st.builds(
    Job,
    topic=st.just("orderclose"),
    id=NAME,
    token=st.text("0123456789abcdef", min_size=16, max_size=16),
    put_ms=TIME_MS,
    due_ms=TIME_MS,
    ttr_ms=st.integers(1_000, 86_400_000),
    payload=st.binary(max_size=200),
    content_type=st.sampled_from(["application/json", "text/plain", "application/x-thing"]),
    attempt=st.integers(1, 1000),
    max_attempts=st.none() | st.integers(1, 1000),
    callback=st.none() | st.just("https://example.com/close"),
)


def decode(message: Message, now_ms: int = 0) -> Job:
    return envelope.decode(message, topic="orderclose", now_ms=now_ms, random_hex="0" * 16)


@given(JOBS)
def test_a_job_reads_back_as_itself(job: Job) -> None:
    assert decode(envelope.encode(job)) == job


@given(JOBS)
def test_what_the_broker_adds_on_the_way_does_not_matter(job: Job) -> None:
    message = envelope.encode(job)
    travelled = dict(message.headers) | {
        "x-death": [{"queue": "hold.30m", "count": 1}],
        "x-first-death-queue": "hold.30m",
        "x-last-death-reason": "expired",
        "x-delivery-count": 3,
    }
    arrived = Message(message.body, travelled, message.message_id, message.content_type)
    assert decode(arrived) == job
    assert envelope.fresh_headers(travelled) == message.headers


def test_a_message_from_somebody_else_is_a_job_that_is_due_now() -> None:
    job = decode(Message(b"hello", {}), now_ms=1_700_000_000_000)
    assert (job.payload, job.due_ms, job.ttr_ms) == (b"hello", 1_700_000_000_000, 60_000)
    assert (job.attempt, job.max_attempts, job.token) == (1, None, "")
    assert identity.due_ms(job.id) == job.due_ms


def test_a_timestamp_stands_in_for_the_put_time() -> None:
    assert decode(Message(b"", {}, timestamp_s=1_700_000_000)).put_ms == 1_700_000_000_000


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"rd-version": 2}, "upgrade the consumer"),
        ({"rd-version": 0}, "rd-version 0"),
        ({"rd-ttr": "60000"}, "header rd-ttr"),
        ({"rd-ttr": 5}, "header rd-ttr"),
        ({"rd-due": -1}, "header rd-due"),
        ({"rd-put": 1 << 60}, "header rd-put"),
        ({"rd-attempt": 0}, "header rd-attempt"),
        ({"rd-attempt": True}, "header rd-attempt"),
        ({"rd-token": 7}, "header rd-token"),
        ({"rd-callback": b"\xff"}, "header rd-callback"),
    ],
)
def test_what_cannot_be_understood_says_why(headers: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotAJob, match=reason):
        decode(Message(b"", headers))


def test_an_id_that_cannot_be_one_says_why() -> None:
    with pytest.raises(NotAJob, match="message_id"):
        decode(Message(b"", {}, message_id="x" * 201))


def test_version_1_is_read_for_ever() -> None:
    """A message as version 1 wrote it. Jobs wait for years: never remove this test."""
    recorded = Message(
        b'{"order":42}',
        {
            "rd-version": 1,
            "rd-put": 1_794_808_573_661,
            "rd-due": 1_794_810_373_661,
            "rd-ttr": 60_000,
            "rd-attempt": 1,
            "rd-token": "70a9a3e17af9dfba",
            "rd-max-attempts": 5,
            "rd-callback": "https://shop.example/close",
        },
        "orderclose-42",
        "application/json",
        1_794_808_573,
    )
    job = decode(recorded)
    assert (job.id, job.body, job.delay.total_seconds()) == ("orderclose-42", {"order": 42}, 1800)
    assert (job.max_attempts, job.callback) == (5, "https://shop.example/close")
