"""Validation: invalid arguments raise a clear error, and valid ones become a Job."""

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from rabbitdelay.core.jobs import ids, validation
from rabbitdelay.errors import InvalidJob
from rabbitdelay.models import Job, JobSpec

NOW_MS = 1_800_000_000_000
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
RANDOM = "a1" * 16


class Order(BaseModel):
    order: int


def make(*args: Any, bounds: validation.Bounds | None = None, **options: Any) -> Job:  # noqa: ANN401
    spec = JobSpec(*args, **options)
    return validation.make_job(
        spec, now_ms=NOW_MS, random_hex=RANDOM, bounds=bounds or validation.Bounds()
    )


@pytest.mark.parametrize(
    ("delay", "delay_ms"),
    [
        (0, 0),
        (1800, 1_800_000),
        (0.25, 250),
        (0.1 + 0.2, 300),
        (0.0001, 1),
        (timedelta(minutes=5), 300_000),
        (timedelta(microseconds=1), 1),
    ],
)
def test_delays_are_rounded_up_to_milliseconds(delay: float | timedelta, delay_ms: int) -> None:
    assert make("t", delay=delay).due_ms - NOW_MS == delay_ms


@pytest.mark.parametrize(
    ("at", "due_ms"),
    [
        (NOW + timedelta(hours=1), NOW_MS + 3_600_000),
        ((NOW + timedelta(hours=1)).astimezone(timezone(timedelta(hours=9))), NOW_MS + 3_600_000),
        (NOW - timedelta(days=1), NOW_MS),
        (datetime(1950, 1, 1, tzinfo=UTC), NOW_MS),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=23))), NOW_MS),
    ],
)
def test_at_is_the_due_time_or_now_when_past(at: datetime, due_ms: int) -> None:
    assert make("t", at=at).due_ms == due_ms


@pytest.mark.parametrize(
    ("body", "payload", "content_type"),
    [
        ({"order": 42}, b'{"order":42}', "application/json"),
        (None, b"null", "application/json"),
        ([1, 2.5, True], b"[1,2.5,true]", "application/json"),
        (Order(order=1), b'{"order":1}', "application/json"),
        ({"o": Order(order=1)}, b'{"o":{"order":1}}', "application/json"),
        (
            {"at": datetime(2027, 1, 1, tzinfo=UTC)},
            b'{"at":"2027-01-01T00:00:00Z"}',
            "application/json",
        ),
        ({"say": "NaN and Infinity"}, b'{"say":"NaN and Infinity"}', "application/json"),
        ("grüße", "grüße".encode(), "text/plain; charset=utf-8"),
        (b"\x00\xff", b"\x00\xff", "application/octet-stream"),
        (bytearray(b"x"), b"x", "application/octet-stream"),
    ],
)
def test_bodies_are_encoded_with_a_content_type(
    body: object, payload: bytes, content_type: str
) -> None:
    job = make("t", body)
    assert (job.payload, job.content_type) == (payload, content_type)


TEXT = st.text(st.characters(codec="utf-8"))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
)


@given(JSON_VALUES)
def test_a_json_body_round_trips(body: object) -> None:
    if isinstance(body, str):
        assert make("t", body).body == body
    else:
        assert json.loads(make("t", body).payload) == body == make("t", body).body


@pytest.mark.parametrize("delay", [-1, -0.001, timedelta.min, timedelta(seconds=-5)])
def test_a_negative_delay_means_now(delay: float | timedelta) -> None:
    job = make("t", delay=delay)
    assert job.due_ms == job.put_ms


def test_a_content_type_can_be_given() -> None:
    assert make("t", b"<a/>", content_type="application/xml").content_type == "application/xml"


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        ([""], {}, "topic must be a non-empty"),
        ([None], {}, "topic must be a non-empty"),
        (["a b"], {}, "may only contain"),
        (["a#"], {}, "may only contain"),
        (["a\n"], {}, "may only contain"),
        (["t" * 201], {}, "at most 200 bytes"),
        (["t"], {"delay": float("nan")}, "finite"),
        (["t"], {"delay": float("inf")}, "finite"),
        (["t"], {"delay": 10**12}, "at most 9 years"),
        (["t"], {"delay": timedelta(days=4000)}, "at most 9 years"),
        (["t"], {"delay": timedelta.max}, "at most 9 years"),
        (["t"], {"delay": "30m"}, "number of seconds or a timedelta, not str"),
        (["t"], {"delay": True}, "not bool"),
        (["t"], {"delay": None}, "not NoneType"),
        (["t"], {"delay": 1, "at": NOW}, "either `delay` or `at`"),
        (["t"], {"at": datetime(2027, 1, 1)}, "no time zone"),  # noqa: DTZ001 - on purpose
        (["t"], {"at": "2027-01-01"}, "at must be a datetime"),
        (["t"], {"ttr": 0}, "ttr must be from 1 second to 24 hours"),
        (["t"], {"ttr": 86_401}, "ttr must be"),
        (["t"], {"id": ""}, "id must be a non-empty"),
        (["t"], {"id": 7}, "id must be a non-empty"),
        (["t"], {"id": "ü" * 101}, "at most 200 bytes, got 202"),
        (["t"], {"id": "a\x00"}, "NUL"),
        (["t"], {"id": "\ud800"}, "not valid Unicode"),
        (["t", object()], {}, "body of type object is not JSON-serializable"),
        (["t", {"x": float("nan")}], {}, "nan is not a JSON number"),
        (["t", [float("inf")]], {}, "inf is not a JSON number"),
        (["t", "\ud800"], {}, "body of type str"),
        (["t", b"x" * (1024 * 1024 + 1)], {}, "at most 1,048,576 bytes, got 1,048,577"),
        (["t"], {"max_attempts": 0}, "max_attempts"),
        (["t"], {"max_attempts": 1.5}, "max_attempts"),
        (["t"], {"callback": "ftp://x"}, "http or https"),
        (["t"], {"callback": "https://" + "x" * 2000}, "callback must be a URL of at most"),
        (["t"], {"callback": "https://x/\ud800"}, "callback must be a URL of at most"),
        (["t"], {"content_type": "x" * 256}, "content_type"),
        (["t"], {"content_type": ""}, "content_type"),
        (["t"], {"content_type": "\ud800"}, "content_type"),
        (["t"], {"content_type": b"text/plain"}, "content_type"),
        (["t"], {"max_attempts": True}, "max_attempts"),
        (["t"], {"max_attempts": 1_000_001}, "max_attempts must be from 1 to 1,000,000"),
        (["t"], {"backoff": -1}, "backoff must be from 0 to 30 days"),
        (["t"], {"backoff": timedelta(days=30, milliseconds=1)}, "backoff must be from"),
        (["t"], {"backoff": "1s"}, "backoff must be a number of seconds"),
        (["t"], {"backoff_max": -0.001}, "backoff_max must be from 0 to 30 days"),
        (["t"], {"backoff_max": timedelta(days=31)}, "backoff_max must be from"),
        (["t"], {"reply_to": ""}, "reply_to must be a queue name"),
        (["t"], {"reply_to": "ü" * 128}, "of 1 to 255 bytes"),
        (["t"], {"reply_to": 7}, "reply_to must be"),
        (["t"], {"reply_to": "amq.rabbitmq.reply-to"}, "use reply=True or a queue name"),
        (["t"], {"reply_to": "amq.rabbitmq.reply-to.g1h"}, "must not be 'amq.rabbitmq.reply-to"),
        (["t"], {"reply_to": "\ud800"}, "reply_to must be"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_explained(
    arguments: list[Any], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidJob, match=says):
        make(*arguments, **options)


def test_missing_options_are_left_to_the_topic() -> None:
    job = make("t")
    assert (job.ttr_ms, job.max_attempts, job.callback) == (None, None, None)
    assert (job.backoff_ms, job.backoff_max_ms, job.reply_to) == (None, None, None)


def test_options_for_retries_and_responses() -> None:
    job = make("t", backoff=0, backoff_max=timedelta(days=30), reply_to="ü" * 127, max_attempts=1)
    assert (job.backoff_ms, job.backoff_max_ms) == (0, 30 * 86_400_000)
    assert (job.reply_to, job.max_attempts, job.attempt) == ("ü" * 127, 1, 1)
    assert make("t", backoff=0.0015).backoff_ms == 2


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ("a", ("a",)),
        (["a"], ("a",)),
        (["b", "a", "b"], ("b", "a")),
        (("a.b", "a"), ("a.b", "a")),
        ({"a": 1}, ("a",)),
    ],
)
def test_one_or_several_topics(topics: Any, expected: tuple[str, ...]) -> None:  # noqa: ANN401
    assert validation.check_topics(topics) == expected


@pytest.mark.parametrize(
    ("topics", "says"),
    [
        ([], "at least one topic"),
        ("", "topic must be a non-empty"),
        (["a", ""], "topic must be a non-empty"),
        (["a", "b c"], "may only contain"),
        (["a", 7], "not 7"),
        ([["a"]], "topic must be"),
        (None, "topics must be a str or a sequence of them, not None"),
        (7, "topics must be"),
        (b"a", "topic must be a non-empty str, not 97"),
    ],
)
def test_invalid_topics_are_explained(topics: Any, says: str) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidJob, match=says):
        validation.check_topics(topics)


@pytest.mark.parametrize("count", [1, 2, 1_000])
def test_a_valid_count_is_returned(count: int) -> None:
    assert validation.check_count(count, "count", 1_000) == count


@pytest.mark.parametrize("count", [0, -1, 1_001, True, 1.0, "1", None])
def test_an_invalid_count_is_explained(count: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidJob, match=f"many must be from 1 to 1,000, not {count!r}"):
        validation.check_count(count, "many", 1_000)


def test_a_body_that_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(InvalidJob, match="not JSON-serializable"):
        make("t", loop)


def test_a_namespace_may_have_a_lower_max_delay() -> None:
    with pytest.raises(InvalidJob, match="max_delay of 1h"):
        make("t", delay=3601, bounds=validation.Bounds(max_delay_ms=3_600_000))


def test_a_generated_id_contains_the_due_time_and_sorts_by_it() -> None:
    early, late = make("t", delay=1), make("t", delay=2)
    assert ids.due_ms(early.id) == early.due_ms
    assert early.id < late.id
    assert len(early.id) == 30
    assert early.id.isalnum()


def test_a_chosen_id_contains_no_due_time() -> None:
    job = make("t", id="orderclose-42")
    assert job.id == "orderclose-42"
    assert ids.due_ms(job.id) is None


def test_repr_of_a_job_contains_its_times_but_not_its_body() -> None:
    job = make("t", {"card": "4111"}, delay=90, ttr=5)
    assert (job.put, job.due) == (NOW, NOW + timedelta(seconds=90))
    assert (job.delay, job.ttr) == (timedelta(seconds=90), timedelta(seconds=5))
    assert "4111" not in repr(job)


def test_rich_values_are_encoded_as_json() -> None:
    body = {"id": UUID(int=1), "price": Decimal("9.90")}
    assert make("t", body).body == {"id": "00000000-0000-0000-0000-000000000001", "price": "9.90"}
