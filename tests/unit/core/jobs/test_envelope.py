"""The wire format: encoding jobs, decoding messages, and refusing invalid ones."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.jobs import envelope, ids
from rabbitdelay.core.jobs.envelope import Message
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
    backoff_ms=st.none() | st.integers(0, 30 * 86_400_000),
    backoff_max_ms=st.none() | st.integers(0, 30 * 86_400_000),
    reply_to=st.none() | NAME,
    payload=st.binary(max_size=200),
    content_type=st.sampled_from(["application/json", "text/plain", "application/x-thing"]),
    attempt=st.integers(1, 1000),
    max_attempts=st.none() | st.integers(1, 1000),
    callback=st.none() | st.just("https://example.com/close"),
)


def decode(message: Message, now_ms: int = 0, default_ttr_ms: int = 60_000) -> Job:
    return envelope.decode(
        message,
        topic="orderclose",
        now_ms=now_ms,
        random_hex="0" * 16,
        default_ttr_ms=default_ttr_ms,
    )


@given(JOBS)
def test_a_job_round_trips(job: Job) -> None:
    assert decode(envelope.encode(job)) == job


@given(JOBS)
def test_headers_added_by_the_broker_are_ignored(job: Job) -> None:
    message = envelope.encode(job)
    travelled = dict(message.headers) | {
        "x-death": [{"queue": "hold.30m", "count": 1}],
        "x-first-death-queue": "hold.30m",
        "x-last-death-reason": "expired",
        "x-delivery-count": 3,
    }
    assert decode(replace(message, headers=travelled)) == job
    assert envelope.fresh_headers(travelled) == message.headers


def test_a_foreign_message_is_a_job_that_is_due_now() -> None:
    job = decode(Message(b"hello", {}), now_ms=1_700_000_000_000)
    assert (job.payload, job.due_ms, job.ttr_ms) == (b"hello", 1_700_000_000_000, 60_000)
    assert (job.attempt, job.max_attempts, job.token) == (1, None, "")
    assert ids.due_ms(job.id) == job.due_ms


def test_the_timestamp_replaces_a_missing_put_time() -> None:
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
        ({"rd-token": "x" * 65}, "header rd-token"),
        ({"rd-token": "\udcff"}, "header rd-token"),
        ({"rd-max-attempts": 0}, "header rd-max-attempts"),
        ({"rd-backoff": -1}, "header rd-backoff"),
        ({"rd-backoff": 30 * 86_400_000 + 1}, "header rd-backoff"),
        ({"rd-backoff-max": 30 * 86_400_000 + 1}, "header rd-backoff-max"),
        ({"rd-backoff-max": 1.5}, "header rd-backoff-max"),
    ],
)
def test_an_invalid_message_is_refused(headers: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotAJob, match=reason):
        decode(Message(b"", headers))


@pytest.mark.parametrize("message_id", ["x" * 201, "a\x00", "\udcff"])
def test_an_invalid_id_is_refused(message_id: str) -> None:
    with pytest.raises(NotAJob, match="message_id"):
        decode(Message(b"", {}, message_id=message_id))


def test_options_left_to_the_topic_are_not_written() -> None:
    job = Job("orderclose", "id", "token", 0, 0, None, b"")
    message = envelope.encode(job)
    assert message.headers.keys() == {
        "rd-version", "rd-put", "rd-due", "rd-attempt", "rd-token"
    }  # fmt: skip
    assert message.reply_to is None
    assert decode(message, default_ttr_ms=5_000).ttr_ms == 5_000
    assert decode(replace(message, headers={"rd-ttr": 7_000}), default_ttr_ms=5_000).ttr_ms == 7_000


@pytest.mark.parametrize(
    ("timestamp_s", "put_ms"),
    [
        (0, 0),
        (envelope.MAX_TIME_S - 1, (envelope.MAX_TIME_S - 1) * 1000),
        (envelope.MAX_TIME_S, 5),
        ((1 << 64) - 1, 5),
    ],
)
def test_a_timestamp_beyond_all_calendars_is_ignored(timestamp_s: int, put_ms: int) -> None:
    assert decode(Message(b"", {}, timestamp_s=timestamp_s), now_ms=5).put_ms == put_ms


def test_the_put_time_takes_precedence_over_the_timestamp() -> None:
    assert decode(Message(b"", {"rd-put": 9}, timestamp_s=1)).put_ms == 9


def test_a_message_keeps_its_generated_id() -> None:
    """Otherwise each attempt would be another job."""
    came = Message(b"hello", {"theirs": 1}, content_type="text/plain", priority=3)
    job = decode(came, now_ms=1_700_000_000_000)
    named = envelope.named(came, job)
    headers = {"theirs": 1, "rd-due": job.due_ms}
    assert named == replace(came, message_id=job.id, headers=headers)
    again = decode(named, now_ms=1_800_000_000_000)
    assert (again.id, again.due_ms) == (job.id, job.due_ms)


@pytest.mark.parametrize("timestamp_s", [None, 1 << 62])
def test_the_put_time_is_never_taken_from_the_consumer_s_clock(
    timestamp_s: int | None,
) -> None:
    """Deletes are compared with it, so a copy must not contain the time of a delivery."""
    came = Message(b"", {}, timestamp_s=timestamp_s)
    named = envelope.named(came, decode(came, now_ms=1_700_000_000_000))
    assert not envelope.tells_when_put(came)
    assert not envelope.tells_when_put(named)


@pytest.mark.parametrize(
    ("headers", "redelivered", "count"),
    [
        ({}, False, 0),
        ({}, True, 1),
        ({"x-delivery-count": 3}, True, 3),
        ({"x-delivery-count": 0}, True, 0),  # 4.3 does not count a requeue
        ({"x-delivery-count": -1}, True, 1),
        ({"x-delivery-count": "3"}, False, 0),
    ],
)
def test_redeliveries_are_counted_by_the_broker(
    headers: dict[str, Any],
    redelivered: bool,  # noqa: FBT001 - a column of the table
    count: int,
) -> None:
    assert envelope.redeliveries(Message(b"", headers), redelivered=redelivered) == count


def test_fresh_headers_exclude_those_added_by_brokers() -> None:
    theirs = {"x-tenant": "a", "rd-attempt": 2, "trace": "t"}
    brokers = ("x-death", "x-delivery-count", "x-acquired-count", "CC", "BCC", "x-opt-by")
    added = dict.fromkeys((*brokers, "x-first-death-queue", "x-last-death-reason"), "b")
    assert envelope.fresh_headers(theirs | added) == theirs


def test_version_1_remains_readable() -> None:
    """A message as version 1 wrote it. Never remove this test, because jobs wait for years."""
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
    assert (job.backoff_ms, job.backoff_max_ms, job.reply_to) == (None, None, None)
