"""The outcome of a job by HTTP status, and the delay of Retry-After."""

from datetime import UTC, datetime, timedelta

import pytest

from rabbitdelay.actions.webhook.status import (
    WebhookResponse,
    printable_excerpt,
    raise_for_status,
    retry_after_seconds,
)
from rabbitdelay.errors import Bury, Retry

NOW = datetime(2027, 1, 15, 8, 0, 0, tzinfo=UTC)
ORIGIN = "https://example.com"


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_success_finishes_the_job(status: int) -> None:
    raise_for_status(WebhookResponse(status), origin=ORIGIN, now=NOW)


def test_gone_buries_the_job() -> None:
    with pytest.raises(Bury, match=r"https://example\.com returned 410 Gone: no such order"):
        raise_for_status(WebhookResponse(410, beginning=b"no such order"), origin=ORIGIN, now=NOW)


@pytest.mark.parametrize(
    ("response", "delay", "text"),
    [
        (WebhookResponse(500, beginning=b"oops"), None, "500 Internal Server Error: oops"),
        (WebhookResponse(404), None, "returned 404 Not Found"),
        (WebhookResponse(599), None, "returned 599"),
        (WebhookResponse(429), None, "returned 429 Too Many Requests"),
        (WebhookResponse(429, "7"), 7.0, "returned 429"),
        (WebhookResponse(503, "7"), 7.0, "returned 503"),
        (WebhookResponse(503, "soon"), None, "returned 503"),
        (WebhookResponse(500, "7"), None, "returned 500"),
        (
            WebhookResponse(301, location="https://x.example/y?key=z"),
            None,
            r"Permanently \(location: https://x.example/y\): redir",
        ),
        (WebhookResponse(302), None, r"\(location: unknown\): redirects are not followed"),
        (WebhookResponse(304), None, "redirects are not followed"),
        (WebhookResponse(101), None, "101 Switching Protocols"),
    ],
)
def test_any_other_status_retries_the_job(
    response: WebhookResponse, delay: float | None, text: str
) -> None:
    with pytest.raises(Retry, match=text) as caught:
        raise_for_status(response, origin=ORIGIN, now=NOW)
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
def test_retry_after_gives_the_delay_in_seconds(value: str, seconds: float | None) -> None:
    assert retry_after_seconds(value, NOW) == seconds


def test_a_retry_after_date_is_relative_to_now() -> None:
    later = NOW + timedelta(seconds=60)
    assert retry_after_seconds("Fri, 15 Jan 2027 08:01:30 GMT", later) == 30.0


def test_untrusted_text_is_shown_on_one_short_line() -> None:
    assert printable_excerpt("a\r\n b\x1b[31m\x00") == "a b·[31m·"
    assert len(printable_excerpt("x" * 1_000)) == 200
