"""What a status means for a job, and how long a server wants to be left alone."""

from datetime import UTC, datetime, timedelta

import pytest

from rabbitdelay.actions.webhook.status import Answer, judge, retry_after_seconds, shown
from rabbitdelay.errors import Bury, Retry

NOW = datetime(2027, 1, 15, 8, 0, 0, tzinfo=UTC)
ORIGIN = "https://example.com"


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_success_finishes(status: int) -> None:
    judge(Answer(status), origin=ORIGIN, now=NOW)


def test_gone_buries() -> None:
    with pytest.raises(Bury, match=r"https://example\.com says 410 Gone: no such order"):
        judge(Answer(410, beginning=b"no such order"), origin=ORIGIN, now=NOW)


@pytest.mark.parametrize(
    ("answer", "delay", "text"),
    [
        (Answer(500, beginning=b"oops"), None, "500 Internal Server Error: oops"),
        (Answer(404), None, "says 404 Not Found"),
        (Answer(599), None, "says 599"),
        (Answer(429), None, "says 429 Too Many Requests"),
        (Answer(429, "7"), 7.0, "says 429"),
        (Answer(503, "7"), 7.0, "says 503"),
        (Answer(503, "soon"), None, "says 503"),
        (Answer(500, "7"), None, "says 500"),
        (Answer(301, location="https://x.example/y?key=z"), None, "to https://x.example/y: redir"),
        (Answer(302), None, "to elsewhere: redirects are not followed"),
        (Answer(304), None, "redirects are not followed"),
        (Answer(101), None, "101 Switching Protocols"),
    ],
)
def test_anything_else_is_tried_again(answer: Answer, delay: float | None, text: str) -> None:
    with pytest.raises(Retry, match=text) as caught:
        judge(answer, origin=ORIGIN, now=NOW)
    assert caught.value.delay == delay


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 120 ", 120.0),
        ("Fri, 15 Jan 2027 08:01:30 GMT", 90.0),
        ("Friday, 15-Jan-27 08:01:30 GMT", 90.0),
        ("Fri Jan 15 08:01:30 2027", 90.0),
        ("999999999", 86_400.0),
        ("Fri, 15 Jan 2038 08:01:30 GMT", 86_400.0),
        ("0", None),
        ("Fri, 15 Jan 2027 07:59:59 GMT", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("9" * 5_000, None),
        ("Fri, 99 Jan 2027 08:01:30 GMT", None),
        ("soon", None),
        ("", None),
    ],
)
def test_how_long_to_wait(value: str, seconds: float | None) -> None:
    assert retry_after_seconds(value, NOW) == seconds


def test_a_date_counts_from_now() -> None:
    later = NOW + timedelta(seconds=60)
    assert retry_after_seconds("Fri, 15 Jan 2027 08:01:30 GMT", later) == 30.0


def test_text_from_elsewhere_is_shown_on_one_short_line() -> None:
    assert shown("a\r\n b\x1b[31m\x00") == "a b·[31m·"
    assert len(shown("x" * 1_000)) == 200
