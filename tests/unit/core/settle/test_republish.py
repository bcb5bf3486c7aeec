"""Copies: fresh messages of the same job, with the reason why the attempt failed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.deletes.tombstones import LONG_MS
from rabbitdelay.core.jobs import envelope
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.settle import failure, republish
from rabbitdelay.core.settle.failure import MAX_KIND, MAX_TEXT, Failure
from rabbitdelay.core.settle.republish import Dates, Grave, read_grave
from rabbitdelay.models import Job

NOW_MS = 1_794_845_600_000
MOMENT = datetime(2026, 11, 16, 16, 13, 25, tzinfo=UTC)
OF_THE_PUTTER = {"trace-id": "4bf92f", "x-tenant": 7, "x-shovelled": True}
ANY_TEXT = st.text(st.characters(), max_size=3 * MAX_TEXT)  # lone surrogates and NUL as well
FAILURES = st.none() | st.builds(Failure, ANY_TEXT, ANY_TEXT, st.none() | ANY_TEXT)
TIME_MS = st.integers(0, (1 << 48) - 1)
ATTEMPTS = st.integers(1, 1000)
JOBS = st.builds(
    Job,
    topic=st.just("mail"),
    id=st.just("mail-1"),
    token=st.text("0123456789abcdef", min_size=16, max_size=16),
    put_ms=TIME_MS,
    due_ms=TIME_MS,
    ttr_ms=st.integers(1_000, 86_400_000),
    payload=st.binary(max_size=100),
    attempt=ATTEMPTS,
    max_attempts=st.none() | ATTEMPTS,
    callback=st.none() | st.just("https://example.com/close"),
    backoff_ms=st.none() | st.integers(0, 1_000),
    backoff_max_ms=st.none() | st.integers(0, 1_000),
    reply_to=st.none() | st.just("replies"),
    headers=st.just({"trace-id": "4bf92f"}),
)


def death(queue: str, reason: str, exchange: str, key: str) -> dict[str, Any]:
    return {
        "count": 1,
        "exchange": f"rabbitdelay.v1.{exchange}",
        "queue": f"rabbitdelay.v1.{queue}",
        "reason": reason,
        "routing-keys": [key],
        "time": MOMENT,
    }


def buried_by_broker(reason: str) -> dict[str, dict[str, Any]]:
    """Return headers that RabbitMQ 3.10.8 and 4.3.6 add to a job that they bury, as recorded."""
    key = "0.0.0.0.0.0.1.0.mail"
    deaths = [
        death("ready.mail", reason, "level.cs", key),
        death("hold.100ms", "expired", "hold.100ms", key),
    ]
    first = {
        "x-death": deaths,
        "x-first-death-exchange": "rabbitdelay.v1.hold.100ms",
        "x-first-death-queue": "rabbitdelay.v1.hold.100ms",
        "x-first-death-reason": "expired",
    }
    last = {
        "x-last-death-exchange": "rabbitdelay.v1.level.cs",
        "x-last-death-queue": "rabbitdelay.v1.ready.mail",
        "x-last-death-reason": reason,
    }
    return {
        "3.10": {**first, "x-delivery-count": 0},
        "4.3": {**first, **last, "x-delivery-count": 21, "x-acquired-count": 21},
    }


BROKER_HEADERS = buried_by_broker("delivery_limit")["4.3"]


def travelled(job: Job) -> Message:
    """Return a job's message as a consumer gets it, with headers of its putter and the broker."""
    sent = envelope.encode(job)
    headers = {**sent.headers, **OF_THE_PUTTER, **BROKER_HEADERS}
    return Message(sent.body, headers, sent.message_id, sent.content_type, reply_to=sent.reply_to)


def decode(message: Message) -> Job:
    return envelope.decode(message, topic="mail", now_ms=0, random_hex="0" * 16)


def is_fresh(message: Message) -> bool:
    kept = OF_THE_PUTTER.items() <= message.headers.items()
    return kept and not message.headers.keys() & BROKER_HEADERS.keys()


def at(due_ms: int) -> Dates:
    return Dates(due_ms, due_ms)


@given(JOBS, ATTEMPTS, TIME_MS, FAILURES)
def test_a_retry_is_the_same_job_with_another_attempt(
    job: Job, attempt: int, due_ms: int, why: Failure | None
) -> None:
    copy = republish.again(travelled(job), attempt=attempt, dates=at(due_ms), failure=why)
    assert is_fresh(copy)
    back = decode(copy)
    assert (back.attempt, back.due_ms) == (attempt, due_ms)
    assert _without_attempt(back) == _without_attempt(job)


@given(JOBS, ANY_TEXT, FAILURES)
def test_a_buried_copy_is_the_same_job_with_a_reason(
    job: Job, reason: str, why: Failure | None
) -> None:
    copy = republish.buried(travelled(job), reason=reason, now_ms=NOW_MS, failure=why)
    assert is_fresh(copy)
    assert decode(copy) == job
    grave = read_grave(copy.headers)
    assert (grave.reason, grave.buried_ms) == (failure.bounded(reason), NOW_MS)
    assert (grave.error is None) == (why is None)


@given(JOBS, ANY_TEXT, FAILURES)
def test_a_kicked_copy_is_the_same_job_at_attempt_1(
    job: Job, reason: str, why: Failure | None
) -> None:
    grave = republish.buried(travelled(job), reason=reason, now_ms=1, failure=why)
    copy = republish.kicked(grave, now_ms=NOW_MS)
    assert is_fresh(copy)
    assert not {name for name in copy.headers if name.startswith(("rd-error", "rd-reason"))}
    assert not {republish.BURIED, republish.TRACEBACK} & copy.headers.keys()
    back = decode(copy)
    assert (back.attempt, back.due_ms) == (1, NOW_MS)
    assert _without_attempt(back) == _without_attempt(job)


@given(JOBS)
def test_copying_does_not_change_the_original(job: Job) -> None:
    received = travelled(job)
    before = dict(received.headers)
    republish.again(received, attempt=2, dates=at(0), failure=Failure("E", "text"))
    republish.buried(received, reason="why", now_ms=0, failure=None)
    republish.kicked(received, now_ms=0)
    assert received.headers == before


# Times


@given(JOBS, st.lists(st.integers(0, 2 * LONG_MS), min_size=1, max_size=10))
def test_the_times_of_a_retry_come_from_its_putter(job: Job, delays: list[int]) -> None:
    """`rd-known` is never after the due time, and no clock is used."""
    message, due_ms, known_ms = travelled(job), job.due_ms, job.due_ms
    for attempt, delay_ms in enumerate(delays, 2):
        dates = republish.dates(message, due_ms, delay_ms)
        message = republish.again(message, attempt=attempt, dates=dates, failure=None)
        due_ms = min(due_ms + delay_ms, (1 << 48) - 1)
        if dates.is_to_be_known:
            known_ms = due_ms
        assert decode(message).due_ms == due_ms
        assert envelope.known_ms(message) == known_ms
        assert due_ms - known_ms <= LONG_MS


@given(JOBS, st.integers(0, LONG_MS), TIME_MS)
def test_a_kick_does_not_extend_how_long_a_job_is_known(
    job: Job, delay_ms: int, now_ms: int
) -> None:
    """This does not depend on the clock of the machine that kicks it."""
    message = travelled(job)
    dates = republish.dates(message, job.due_ms, delay_ms)
    retried = republish.again(message, attempt=2, dates=dates, failure=None)
    assert envelope.known_ms(republish.kicked(retried, now_ms=now_ms)) == min(job.due_ms, now_ms)


@pytest.mark.parametrize(
    ("message", "known_ms"),
    [
        (Message(b"", {}), None),
        (Message(b"", {}, timestamp_s=7), 7_000),
        (Message(b"", {"rd-put": 5}, timestamp_s=7), 5),
        (Message(b"", {"rd-put": 5, "rd-due": 9}), 9),
        (Message(b"", {"rd-due": 9, "rd-known": 6}), 6),
        (Message(b"", {"rd-due": 9, "rd-known": 60}), 9),
        (Message(b"", {"rd-due": 9, "rd-known": "soon"}), 9),
    ],
)
def test_known_ms_is_the_earliest_of_the_times(message: Message, known_ms: int | None) -> None:
    assert envelope.known_ms(message) == known_ms


def test_options_left_to_the_topic_stay_absent() -> None:
    copy = republish.again(Message(b"", {}), attempt=2, dates=at(5), failure=None)
    assert copy.headers == {"rd-attempt": 2, "rd-due": 5}


def test_every_property_is_copied() -> None:
    message = Message(
        b"body", {}, "id", "text/plain", 5, "replies", "c-1", "gzip", 3, "kind", "app"
    )
    for copy in (
        republish.again(message, attempt=2, dates=at(0), failure=None),
        republish.buried(message, reason="why", now_ms=0, failure=None),
        republish.kicked(message, now_ms=0),
    ):
        for name in set(Message.__slots__) - {"headers"}:
            assert getattr(copy, name) == getattr(message, name), name


def test_an_invalid_message_is_buried_unchanged() -> None:
    """An unreadable message is kept unchanged for an operator; only the reason is added."""
    strange = Message(b"\xff", {"rd-ttr": "soon", "rd-version": 99}, "x" * 300)
    copy = republish.buried(strange, reason="header rd-ttr", now_ms=NOW_MS, failure=None)
    added = {republish.REASON: "header rd-ttr", republish.BURIED: NOW_MS}
    assert copy == Message(b"\xff", {"rd-ttr": "soon", "rd-version": 99} | added, "x" * 300)


def test_a_retry_removes_the_headers_of_a_burial() -> None:
    """After a move in the management UI instead of a kick, the old reason does not stay."""
    moved = republish.buried(Message(b"", {}, "id"), reason="old", now_ms=1, failure=None)
    copy = republish.again(moved, attempt=2, dates=at(0), failure=None)
    by_broker = {**copy.headers, **BROKER_HEADERS}
    assert "delivery limit" in read_grave(by_broker).reason
    assert read_grave(by_broker).buried_ms != 1


# Failures


@given(FAILURES.filter(bool), ANY_TEXT)
def test_texts_in_headers_are_bounded_and_encodable(why: Failure, reason: str) -> None:
    copy = republish.buried(Message(b"", {}), reason=reason, now_ms=0, failure=why)
    texts = [
        copy.headers[name] for name in (republish.REASON, republish.ERROR, republish.ERROR_TYPE)
    ]
    for text, most in zip(texts, (MAX_TEXT, MAX_TEXT, MAX_KIND), strict=True):
        assert len(text) <= most
        assert "\x00" not in text
        text.encode()


@given(st.text(st.characters(), max_size=40), st.integers(2, 20))
def test_a_long_traceback_keeps_its_end(text: str, most: int) -> None:
    kept = failure.bounded_traceback(text, most)
    whole = failure.bounded_traceback(text)
    assert len(kept) <= most
    assert kept == whole or (kept[0] == "…" and whole.endswith(kept[1:]))
    kept.encode()


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=MAX_TEXT))
def test_a_short_text_is_kept_unchanged(text: str) -> None:
    assert failure.bounded(text) == text


def test_a_truncated_text_ends_with_an_ellipsis() -> None:
    assert failure.bounded("x" * (MAX_TEXT + 1)) == "x" * (MAX_TEXT - 1) + "…"


def test_a_failure_has_the_type_and_text_of_the_exception() -> None:
    why = Failure.of(ZeroDivisionError("division by zero"))
    assert (why.kind, why.text) == ("ZeroDivisionError", "division by zero")
    assert str(why) == "ZeroDivisionError: division by zero"
    assert str(Failure.of(KeyboardInterrupt())) == "KeyboardInterrupt"
    assert not why.is_timeout


def test_an_exception_whose_str_raises_is_a_failure() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert Failure.of(Broken()).kind == "Broken"


def test_a_timeout_contains_the_ttr() -> None:
    why = failure.timeout(timedelta(seconds=1.5))
    assert why.is_timeout
    assert str(why) == "Timeout: not settled within its ttr of 1.5 s"


# Buried copies


@pytest.mark.parametrize("version", ["3.10", "4.3"])
@pytest.mark.parametrize(
    ("reason", "text"),
    [("delivery_limit", "delivery limit"), ("rejected", "a consumer rejected it")],
)
def test_the_broker_s_reason_is_read(version: str, reason: str, text: str) -> None:
    grave = read_grave(buried_by_broker(reason)[version])
    assert text in grave.reason
    assert (grave.error, grave.error_type) == (None, None)


def test_the_last_error_is_read_beside_the_broker_s_reason() -> None:
    """The job failed with an error, was retried, and then its consumers died."""
    copy = republish.again(Message(b"", {}), attempt=2, dates=at(0), failure=Failure("E", "text"))
    grave = read_grave({**copy.headers, **BROKER_HEADERS})
    assert "delivery limit" in grave.reason
    assert (grave.error_type, grave.error) == ("E", "text")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "unknown"),
        ({"x-death": []}, "unknown"),
        ({"x-death": "strange"}, "unknown"),
        ({"x-death": ["strange"]}, "unknown"),
        ({"x-death": [{}]}, "unknown"),
        ({"x-death": [{"reason": "maxlen"}]}, "dead-lettered: maxlen"),
        ({"rd-reason": 7, "rd-buried": "x", "rd-error": 7, "rd-error-type": None}, "unknown"),
    ],
)
def test_reading_arbitrary_headers_never_fails(headers: dict[str, Any], reason: str) -> None:
    assert read_grave(headers) == Grave(reason)


def _without_attempt(job: Job) -> tuple[object, ...]:
    names = set(Job.__slots__) - {"attempt", "due_ms"}
    return tuple(getattr(job, name) for name in sorted(names))
