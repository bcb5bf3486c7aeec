"""A web page in a browser on the gateway's machine cannot use a gateway without tokens."""

import pytest

from rabbitdelay.gateway.http.asgi import Receive, Scope, Send
from rabbitdelay.gateway.http.origin import OriginCheck
from tests.support.asgi import request

PATHS = ["/v1/jobs", "/v1/pop", "/", "/push", "/delete"]


async def served(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


LOOPBACK = OriginCheck(served, any_host=False)
NAMED = OriginCheck(served, ("gateway.example",), any_host=False)
ANY = OriginCheck(served, any_host=True)


@pytest.mark.parametrize(
    "host",
    [
        *(
            "localhost",
            "localhost:8000",
            "LOCALHOST:8000",
            "localhost.",
            "127.0.0.1",
            "127.0.0.1:8000",
        ),
        *("[::1]:8000", "[::1]", "127.0.0.53:1", "192.168.1.7:8000"),
    ],
)
def test_loopback_names_and_addresses_are_served(host: str) -> None:
    assert request(LOOPBACK, headers={"Host": host}).status == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example"),
        *(
            "localhost@evil.example",
            "127.0.0.1:8000@evil.example",
            "",
            "[::1",
            "::1",
            "localhost:x",
        ),
        *("gateway.example", "localhost/evil", "localhost evil", "127.0.0.1\t", "2130706433.evil"),
    ],
)
def test_a_rebound_name_is_refused(path: str, host: str) -> None:
    answer = request(LOOPBACK, "POST", path, {"Host": host})
    assert answer.status == 421
    assert answer.json["type"] == "/problems/host-refused"
    assert "evil" not in answer.body.decode()


@pytest.mark.parametrize("hosts", [[], ["localhost", "localhost"], ["localhost", "evil.example"]])
def test_there_is_exactly_one_host(hosts: list[str]) -> None:
    async def replaced(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"host", host.encode()) for host in hosts]
        await LOOPBACK({**scope, "headers": headers}, receive, send)

    assert request(replaced).status == 421


def test_an_allowed_host_is_served() -> None:
    assert request(NAMED, headers={"Host": "Gateway.example:8000"}).status == 200
    assert request(NAMED, headers={"Host": "localhost"}).status == 200
    assert request(NAMED, headers={"Host": "other.example"}).status == 421


@pytest.mark.parametrize("app", [ANY, OriginCheck(served, ("*",), any_host=False)])
def test_any_host_may_be_served(app: OriginCheck) -> None:
    assert request(app, headers={"Host": "any.example"}).status == 200


@pytest.mark.parametrize("app", [LOOPBACK, ANY], ids=["loopback", "any"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site", "unknown", ""])
def test_a_page_of_another_site_is_refused(
    app: OriginCheck, path: str, method: str, site: str
) -> None:
    answer = request(app, method, path, {"Sec-Fetch-Site": site, "Content-Type": "text/plain"})
    assert answer.status == 403
    assert answer.json["type"] == "/problems/cross-site-refused"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "origin",
    [
        *(
            "null",
            "http://evil.example",
            "http://localhost:3000",
            "http://localhost",
            "",
            "localhost",
        ),
        *(
            "https://localhost",
            "file://",
            "http://localhost:8000.evil.example",
            "http://[::1]:8000",
        ),
        *("http://evil.example@localhost.evil", "chrome-extension://abc", "http://localhost:99999"),
    ],
)
def test_another_origin_is_refused(path: str, origin: str) -> None:
    """Older browsers send no Sec-Fetch-Site."""
    assert request(LOOPBACK, "POST", path, {"Origin": origin}).status == 403


def test_no_header_outweighs_another() -> None:
    own, other = "http://localhost:8000", "http://evil.example"
    for headers in (
        [("Sec-Fetch-Site", "same-origin"), ("Origin", other)],
        [("Sec-Fetch-Site", "cross-site"), ("Origin", own)],
        [("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", "cross-site")],
        [("Origin", own), ("Origin", other)],
    ):
        assert request(LOOPBACK, headers=headers).status == 403


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        *(("localhost:8000", "http://localhost:8000"), ("localhost", "http://localhost")),
        *(("gateway.example", "https://gateway.example"), ("[::1]:8000", "http://[::1]:8000")),
        *(("gateway.example:443", "https://gateway.example"), ("Localhost:80", "http://localhost")),
    ],
)
def test_the_own_origin_is_served(host: str, origin: str) -> None:
    headers = {"Host": host, "Origin": origin, "Sec-Fetch-Site": "same-origin"}
    assert request(NAMED, headers=headers).status == 200


def test_programs_that_are_not_browsers_are_served() -> None:
    assert request(LOOPBACK).status == 200
    assert request(LOOPBACK, headers={"Sec-Fetch-Site": "none"}).status == 200


def test_no_answer_allows_another_origin_to_read_it() -> None:
    for headers in ({}, {"Origin": "http://evil.example"}, {"Origin": "http://localhost:8000"}):
        for method in ("GET", "POST", "OPTIONS"):
            answer = request(LOOPBACK, method, headers=headers)
            assert not [name for name, _ in answer.headers if name.startswith(b"access-control")]
