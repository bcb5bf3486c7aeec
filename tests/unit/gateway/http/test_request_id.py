"""Request ids and the headers that every answer has."""

import pytest

from rabbitdelay.gateway.http.asgi import Receive, Scope, Send
from rabbitdelay.gateway.http.request_id import RequestIds, request_id_of
from tests.support.asgi import request


async def tell_id(scope: Scope, _receive: Receive, send: Send) -> None:
    headers = [(b"Cache-Control", b"public"), (b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": (request_id_of(scope) or "").encode()})


APP = RequestIds(tell_id)


@pytest.mark.parametrize("given", ["a", "4bf92f35-77b3.A_b", "x" * 128])
def test_a_sane_id_is_kept(given: str) -> None:
    answer = request(APP, headers={"X-Request-Id": given})
    assert (answer.header("x-request-id"), answer.body) == (given, given.encode())


@pytest.mark.parametrize(
    "given", ["", "x" * 129, "a b", "a\nb", "a\x1b[31m", '"', "ä", "{}", "a,b"]
)
def test_any_other_id_is_replaced(given: str) -> None:
    answer = request(APP, headers={"X-Request-Id": given})
    assert answer.header("x-request-id") != given
    assert len(answer.header("x-request-id") or "") == 16


def test_of_two_ids_neither_is_taken() -> None:
    answer = request(APP, headers=[("X-Request-Id", "a"), ("X-Request-Id", "b")])
    assert answer.header("x-request-id") not in {"a", "b"}


def test_requests_have_different_ids() -> None:
    assert len({request(APP).body for _ in range(100)}) == 100


def test_every_answer_has_the_fixed_headers_once() -> None:
    answer = request(APP)
    assert answer.header("x-content-type-options") == "nosniff"
    assert answer.header("cache-control") == "no-store"
    assert answer.header("content-type") == "text/plain"
    assert not [one for one in answer.headers if one[0] == b"Cache-Control"]
