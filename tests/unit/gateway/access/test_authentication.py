"""Every path needs a valid token, except the two that load balancers ask."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.gateway.access.authentication import Authentication
from rabbitdelay.gateway.access.caller import known_caller
from rabbitdelay.gateway.access.rights import FULL_GRANT
from rabbitdelay.gateway.access.tokens import Token, TokenTable, digest_of
from rabbitdelay.gateway.http.asgi import Receive, Scope, Send
from tests.support.asgi import request

SECRET = "rdt_right"  # noqa: S105 - a token of a test
TABLE = TokenTable(
    [
        Token("shop", FULL_GRANT, digest_of(SECRET.encode())),
        Token("old", FULL_GRANT, digest_of(b"rdt_old"), date(2020, 1, 1)),
    ]
)


async def tell_caller(scope: Scope, _receive: Receive, send: Send) -> None:
    caller = known_caller(scope)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": caller.name.encode() if caller else b""})


APP = Authentication(tell_caller, lambda: TABLE)
OPEN = Authentication(tell_caller, None)


@pytest.mark.parametrize("value", [f"Bearer {SECRET}", f"bearer {SECRET}", f"BEARER  {SECRET} "])
def test_a_valid_token_names_its_caller(value: str) -> None:
    answer = request(APP, headers={"Authorization": value})
    assert (answer.status, answer.body) == (200, b"shop")


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            "Bearer",
            "Bearer ",
            "rdt_right",
            "Basic rdt_right",
            "Bearer rdt_righ",
            "Bearer rdt_rightt",
        ),
        *("Bearer rdt_old", "Bearer RDT_RIGHT", "Bearer rdt_right,rdt_right", "Bearer\trdt_right"),
        *(f"Bearer {digest_of(SECRET.encode()).hex()}", f"Bearer {'x' * 10_000}", "Bearer \0"),
    ],
)
def test_any_other_authorization_is_refused(value: str) -> None:
    answer = request(APP, headers={"Authorization": value})
    assert answer.status == 401
    assert answer.header("www-authenticate") == 'Bearer realm="rabbitdelay"'
    assert answer.json["type"] == "/problems/token-required"
    assert "rdt_" not in answer.body.decode()


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=50))
def test_guesses_are_refused(value: str) -> None:
    if value.split(" ", 1)[-1].strip() != SECRET:
        assert request(APP, headers={"Authorization": value}).status == 401


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/",
            "/push",
            "/v1/jobs",
            "/v1/nothing",
            "/openapi.json",
            "/healthz/",
            "//healthz",
            "/HEALTHZ",
        ),
        *("/healthz/../v1/jobs", "/healthz/x", "/readyz\0", "", "/v1/healthz"),
    ],
)
def test_every_path_needs_a_token(path: str) -> None:
    assert request(APP, "GET", path).status == 401


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_needs_no_token(path: str) -> None:
    answer = request(APP, "GET", path)
    assert (answer.status, answer.body) == (200, b"")


def test_health_with_a_wrong_token_is_refused() -> None:
    assert request(APP, "GET", "/healthz", {"Authorization": "Bearer wrong"}).status == 401


def test_a_gateway_that_is_mounted_has_its_public_paths_below() -> None:
    assert request(APP, "GET", "/jobs/healthz", root_path="/jobs").status == 200
    assert request(APP, "GET", "/jobs/v1/pop", root_path="/jobs").status == 401
    assert request(APP, "GET", "/jobsx/healthz", root_path="/jobs").status == 401


def test_several_tokens_are_refused() -> None:
    """A proxy in front may have looked at the other one."""
    values = [("Authorization", f"Bearer {SECRET}"), ("Authorization", "Bearer other")]
    assert request(APP, headers=values).status == 401
    assert request(APP, headers=[values[0], values[0]]).status == 401


def test_a_refused_request_is_not_read() -> None:
    assert request(APP, "POST", "/v1/jobs", {}, b"body").reads == 0


def test_tokens_are_those_of_the_moment() -> None:
    tables = [TABLE, TokenTable([])]
    app = Authentication(tell_caller, lambda: tables.pop(0))
    headers = {"Authorization": f"Bearer {SECRET}"}
    assert [request(app, headers=headers).status for _ in range(2)] == [200, 401]


def test_without_tokens_every_caller_is_anonymous() -> None:
    assert request(OPEN).body == b"anonymous"
    assert request(OPEN, headers={"Authorization": "Bearer any"}).body == b"anonymous"
