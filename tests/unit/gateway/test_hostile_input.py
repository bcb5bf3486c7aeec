"""Whatever a client sends, the gateway answers it: no failure, no traceback, no secret in a log."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rabbitdelay.gateway.access.rights import RIGHTS, Right
from rabbitdelay.gateway.examples import REQUESTS
from tests.support.gateway.tried_gateway import TriedGateway as Gateway
from tests.support.gateway.tried_gateway import assert_answered, assert_clean


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with Gateway() as running:
        yield running


@pytest.fixture(autouse=True)
def _log_is_clean(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test during which the gateway logged an error, a traceback or a secret."""
    caplog.set_level(logging.DEBUG, "rabbitdelay")
    yield
    assert_clean(caplog.get_records("call"))


untimed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

# Any bytes

METHODS = st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE"])
PIECES = st.one_of(
    st.sampled_from(["v1", "jobs", "topics", "pop", "buried", "unrouted", "kick", "order", "get"]),
    st.sampled_from(
        ["..", ".", "%2e%2e", "%2F", "%00", "%ff", "%", "%zz", "*", "'", "\\", "~", ""]
    ),
    st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), max_size=10),
)
PATHS = st.lists(PIECES, max_size=6).map(lambda pieces: "/" + "/".join(pieces))
HEADERS = st.dictionaries(
    st.sampled_from(["Content-Type", "Accept", "X-Request-Id", "Content-Length", "Host", "Range"])
    | st.text(alphabet="abc-", min_size=1, max_size=5),
    st.sampled_from(["application/json", "text/plain", "application/octet-stream", "*/*", "0", ""])
    | st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=255), max_size=30),
    max_size=5,
)


@untimed
@given(METHODS, PATHS, HEADERS, st.binary(max_size=200))
def test_any_request_is_answered(
    gateway: Gateway, method: str, path: str, headers: dict[str, str], body: bytes
) -> None:
    answer = gateway.send(method, path, body, headers)
    assert_answered(answer)


# Any JSON

TEXTS = st.text(max_size=20) | st.sampled_from(
    [
        "order",
        "a" * 201,
        "../x",
        "a/b",
        "\0",
        "\n",
        "\ud800",
        "٣",
        "1h",
        "-1",
        "1e400",
        "rd-x",
        "\u200b",
    ]
)
NUMBERS = st.one_of(
    st.integers(),
    st.integers(min_value=-5, max_value=5),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 1e308, 5e-324]),
)
VALUES: SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
MEMBERS = st.sampled_from(
    [
        *("topic", "topics", "body", "body_base64", "content_type", "delay", "at", "ttr", "id"),
        *("max_attempts", "callback", "backoff", "backoff_max", "headers", "reply", "jobs"),
        *("lease", "leases", "reason", "ids", "all", "limit", "max", "wait", "command", "TTR"),
    ]
)
OPERATIONS = st.sampled_from(
    [
        *(("POST", "/v1/jobs"), ("POST", "/v1/jobs/batch"), ("PUT", "/v1/jobs/order-1")),
        *(("POST", "/v1/jobs/delete"), ("POST", "/v1/pop"), ("POST", "/v1/finish")),
        *(("POST", "/v1/release"), ("POST", "/v1/touch"), ("POST", "/v1/bury")),
        *(("POST", "/v1/topics/order/buried/kick"), ("POST", "/v1/topics/order/buried/drop")),
        *(("POST", "/v1/unrouted/retry"), ("POST", "/v1/unrouted/drop"), ("POST", "/")),
        *(("POST", "/push"), ("POST", "/pop"), ("POST", "/finish"), ("POST", "/delete")),
        ("POST", "/get"),
    ]
)


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


@untimed
@given(OPERATIONS, st.dictionaries(MEMBERS, VALUES, max_size=6) | VALUES)
@example(("POST", "/v1/jobs"), {"topic": "order", "headers": {"a": 2**64}})
@example(("POST", "/v1/jobs"), {"topic": "order", "headers": {"a": "\ud800"}})
@example(("POST", "/v1/jobs"), {"topic": "order", "id": "\ud800"})
@example(("POST", "/v1/jobs"), {"topic": "order", "callback": "http://\ud800"})
@example(("POST", "/v1/jobs"), {"topic": "order", "body": "\ud800", "content_type": "text/plain"})
@example(("POST", "/v1/jobs"), {"topic": "order", "content_type": "\r\nX-Injected: 1"})
@example(("POST", "/v1/jobs"), {"topic": "order", "delay": 10**400})
@example(("POST", "/v1/jobs"), {"topic": "order", "at": "0001-01-01T00:00:00+23:59"})
@example(("POST", "/v1/jobs"), {"topic": "order", "at": "9999-12-31T23:59:59-23:59"})
@example(("POST", "/v1/jobs"), {"topic": "order", "ttr": "9" * 1000 + "h"})
@example(("POST", "/v1/jobs/delete"), {"ids": ["\ud800", "\0", "a" * 300]})
@example(("POST", "/v1/finish"), {"lease": "\ud800"})
@example(("POST", "/v1/pop"), {"topics": [], "max": 10**30})
@example(("POST", "/v1/pop"), {"topics": ["order"] * 2000})
@example(("POST", "/"), {"command": "delete", "id": "\ud800"})
@example(("POST", "/finish"), {"id": "\ud800"})
def test_any_json_is_answered(gateway: Gateway, operation: tuple[str, str], value: object) -> None:
    assert_answered(gateway.send(*operation, encoded(value)))


@untimed
@given(st.sampled_from(sorted(REQUESTS, key=str)), st.data())
def test_a_valid_request_with_some_bytes_changed_is_answered(
    gateway: Gateway, key: tuple[str, str, str], data: st.DataObject
) -> None:
    valid = REQUESTS[key]
    content = bytearray(valid.encode() if isinstance(valid, str) else encoded(valid))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        if not content:
            break
    for path, method in operations(gateway, key[0]):
        assert_answered(gateway.send(method, path, bytes(content), {"Content-Type": key[1]}))


def operations(gateway: Gateway, operation_id: str) -> Iterator[tuple[str, str]]:
    """Yield path and method of an operation, with the names of the examples in the path."""
    for path, item in gateway.document["paths"].items():
        for method, operation in item.items():
            if operation["operationId"] == operation_id:
                yield path.replace("{topic}", "order").replace("{id}", "order-42"), method.upper()


# Large, deep and broken

DEPTHS = [10, 100, 200, 500, 900, 940, 960, 970, 980, 990, 1000, 1010, 5000, 20_000]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/batch", "/v1/pop", "/push", "/"])
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("member", ["body", "headers", "jobs", "topics", "id"])
def test_deep_nesting_is_answered(gateway: Gateway, path: str, depth: int, member: str) -> None:
    for begin, end in (("[", "]"), ('{"a":', "}")):
        nested = f"{begin * depth}1{end * depth}"
        for text in (nested, f'{{"topic":"order","{member}":{nested}}}', begin * depth):
            assert_answered(gateway.send("POST", path, text.encode()[:50_000]))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe{\x00}\x00",
        b"\xef\xbb\xbf{}",
        b'{"topic":"\xff"}',
        b'{"topic":"\xed\xa0\x80"}',
        b'{"topic":"order","topic":"mail"}',
        b'{"topic":"order","body":NaN}',
        b'{"topic":"order","body":1}{"topic":"order"}',
        b'{"topic":"order","delay":' + b"9" * 40_000 + b"}",
        b'{"topic":"order","delay":1e999999999}',
        b'{"topic":"order","max_attempts":' + b"1" * 5_000 + b"}",
        b'{"' + b"a" * 45_000 + b'":1}',
        b'{"' + b"a" * 20_000 + b'":1,"' + b"a" * 20_000 + b'":1}',
        b'{"topic":"' + b"a" * 45_000 + b'"}',
        b'{"topic":"order","id":"' + b"\\u0000" * 7_000 + b'"}',
        b'{"topic":"order","at":"' + b"a" * 45_000 + b'"}',
        b'{"topic":"order","content_type":"' + b"a" * 45_000 + b'"}',
        b'{"topic":"order","callback":"' + b"a" * 45_000 + b'"}',
        b"{" + b",".join(b'"a%d":1' % number for number in range(4_000)) + b"}",
        b'{"topic":"order","headers":{'
        + b",".join(b'"a%d":1' % number for number in range(4_000))
        + b"}}",
        b'{"topics":[' + b",".join([b'"order"'] * 6_000) + b"]}",
        b'{"ids":[' + b",".join([b"1"] * 20_000) + b"]}",
        b'{"ids":[' + b",".join([b'"a"'] * 10_000) + b"]}",
        b'{"jobs":[' + b",".join([b"{}"] * 15_000) + b"]}",
        b'{"jobs":[' + b",".join([b'{"topic":"order"}'] * 2_000) + b"]}",
        b'{"leases":[' + b",".join([b'"x"'] * 10_000) + b"]}",
        b"\n" * 40_000,
        b"[" * 40_000,
        b'"\\ud800"',
    ],
    ids=lambda content: repr(content[:40]),
)
def test_broken_and_large_requests_are_answered(gateway: Gateway, content: bytes) -> None:
    for path, item in gateway.document["paths"].items():
        for method in item:
            for kind in ("application/json", "application/x-ndjson", ""):
                target = path.replace("{topic}", "order").replace("{id}", "a")
                headers = {"Content-Type": kind}
                assert_answered(gateway.send(method.upper(), target, content, headers))


@pytest.mark.parametrize("path", ["/v1/jobs", "/push", "/v1/nothing", "/v1/jobs?topic=order"])
def test_a_body_above_the_limit_is_refused(gateway: Gateway, path: str) -> None:
    answer = gateway.send("POST", path, b"0" * 50_001)
    assert_answered(answer)
    assert answer.status == 413


@pytest.mark.parametrize(
    "query",
    [
        "?topic=order&topic=mail",
        "?topic=%ff",
        "?topic=%00&delay=1",
        "?topic=order&delay=nan",
        "?topic=order&delay=1&unknown=1",
        "?topic=order&id=" + "a" * 10_000,
        "?topic=order&max_attempts=" + "9" * 5_000,
        "?topic=order&at=%F0%9F%98%80",
        "?" + "&".join(f"a{number}=1" for number in range(2_000)),
        "?%",
        "?topic=order&id=%0d%0aX-Injected:%201",
        "?limit=" + "9" * 5_000,
        "?wait=" + "9" * 5_000,
        "?bodies=maybe",
    ],
)
def test_strange_queries_are_answered(gateway: Gateway, query: str) -> None:
    for path, item in gateway.document["paths"].items():
        for method in item:
            target = path.replace("{topic}", "order").replace("{id}", "a") + query
            assert_answered(gateway.send(method.upper(), target, b"{}"))


NAMES = [
    *("..", ".", "%2e%2e%2f", "..%2f..%2fetc%2fpasswd", "%2F", "%252F", "%00", "a%00b", "%ff"),
    *("a" * 201, "a" * 5_000, "%E2%80%AE", "%F0%9F%98%80", "%ED%A0%80", "%0d%0a", "a%0d%0aX:1"),
    *("%20", "+", "*", "#", "'%22%3E", "%5C..%5C", "a;b", "a?b", "order.", "%C0%AF", "${jndi:x}"),
]


@pytest.mark.parametrize("name", NAMES)
def test_tricks_in_paths_are_answered(gateway: Gateway, name: str) -> None:
    for path, item in gateway.document["paths"].items():
        for method in item:
            if "{" in path:
                target = path.replace("{topic}", name).replace("{id}", name)
                assert_answered(gateway.send(method.upper(), target, b'{"topic":"order"}'))


def test_an_id_with_a_slash_is_not_another_path(gateway: Gateway) -> None:
    """A token for `order*` must not reach a route, or an id, by its encoding."""
    for target in ("/v1/jobs/a%2F..%2F..%2Ftopics", "/v1%2Fjobs%2Fa", "/v1/jobs%2Fdelete"):
        answer = gateway.send("DELETE", target, token="orders")  # noqa: S106 - a name of one
        assert answer.status in {403, 404}


# Rights

TOPIC_RIGHTS: list[tuple[str, str, str, Right]] = [
    ("POST", "/v1/jobs", '{"topic":"order"}', "put"),
    ("POST", "/v1/jobs?topic=order", "", "put"),
    ("POST", "/v1/jobs/batch", '{"jobs":[{"topic":"elsewhere"},{"topic":"order"}]}', "put"),
    ("PUT", "/v1/jobs/a", '{"topic":"order"}', "put"),
    ("DELETE", "/v1/jobs/a", "", "put"),
    ("POST", "/v1/jobs/delete", '{"ids":["a"]}', "put"),
    ("GET", "/v1/jobs/a/response", "", "put"),
    ("POST", "/v1/pop", '{"topics":"order"}', "consume"),
    ("POST", "/v1/pop", '{"topics":["elsewhere","order"]}', "consume"),
    ("GET", "/v1/topics/order", "", "consume"),
    ("GET", "/v1/topics", "", "admin"),
    ("POST", "/v1/topics/order/pause", "", "admin"),
    ("POST", "/v1/topics/order/resume", "", "admin"),
    ("POST", "/v1/topics/order/purge", "", "admin"),
    ("GET", "/v1/topics/order/buried", "", "admin"),
    ("POST", "/v1/topics/order/buried/kick", '{"all":true}', "admin"),
    ("POST", "/v1/topics/order/buried/drop", '{"all":true}', "admin"),
    ("GET", "/v1/unrouted", "", "admin"),
    ("GET", "/v1/unrouted?topic=order", "", "admin"),
    ("POST", "/v1/unrouted/retry", '{"all":true}', "admin"),
    ("POST", "/v1/unrouted/drop", '{"all":true,"topic":"order"}', "admin"),
]
SEEDS: list[tuple[str, str, Right]] = [
    ("/", '{"command":"add","topic":"order","id":"a"}', "put"),
    ("/", '{"command":"pop","topic":"elsewhere,order"}', "consume"),
    ("/", '{"command":"finish","id":"a"}', "consume"),
    ("/", '{"command":"delete","id":"a"}', "put"),
    ("/push", '{"topic":"order","id":"a","delay":1,"ttr":60,"body":""}', "put"),
    ("/push", '{"topic":"elsewhere","id":"a","delay":1,"ttr":60,"body":""}', "put"),
    ("/pop", '{"topic":"order"}', "consume"),
    ("/finish", '{"id":"a"}', "consume"),
    ("/delete", '{"id":"a"}', "put"),
]


def tokens_without(right: Right) -> list[str]:
    """Return tokens that lack a right, or have it only for another topic."""
    return [*(other for other in RIGHTS if other != right), f"{right} elsewhere"]


@pytest.mark.parametrize(("method", "path", "body", "right"), TOPIC_RIGHTS)
def test_a_token_without_the_right_or_the_topic_is_refused(
    gateway: Gateway, method: str, path: str, body: str, right: Right
) -> None:
    for token in tokens_without(right):
        answer = gateway.send(method, path, body.encode(), token=token)
        assert_answered(answer)
        assert (answer.status, answer.json["type"]) == (403, "/problems/access-refused"), token
    assert gateway.send(method, path, body.encode(), token=right).status != 403


@pytest.mark.parametrize(("path", "body", "right"), SEEDS)
def test_the_earlier_protocols_check_the_same_rights(
    gateway: Gateway, path: str, body: str, right: Right
) -> None:
    for token in tokens_without(right):
        answer = gateway.send("POST", path, body.encode(), token=token)
        assert answer.status == 200
        assert answer.json.get("success") is False or answer.json.get("code") == 1, token
        assert "this token" in (answer.json.get("error") or answer.json.get("message"))
    answer = gateway.send("POST", path, body.encode(), token=right)
    assert answer.json.get("success") is True or answer.json.get("code") == 0


def test_every_operation_that_needs_a_topic_is_in_the_list(gateway: Gateway) -> None:
    """A new route without an entry there has not been tested for its rights."""
    listed = {(method, path.partition("?")[0]) for method, path, _, _ in TOPIC_RIGHTS}
    listed |= {("POST", path) for path, _, _ in SEEDS}
    leases = {("POST", f"/v1/{verb}") for verb in ("finish", "release", "touch", "bury")}
    free = {("GET", "/healthz"), ("GET", "/readyz"), ("POST", "/get")}
    described = {
        (method.upper(), path.replace("{topic}", "order").replace("{id}", "a"))
        for path, item in gateway.document["paths"].items()
        for method in item
    }
    assert described == listed | leases | free


def test_a_lease_belongs_to_the_topic_of_its_job(gateway: Gateway) -> None:
    gateway.send("POST", "/v1/jobs", b'{"topic":"order","id":"leased"}')
    popped = gateway.send("POST", "/v1/pop", b'{"topics":"order","wait":1,"max":100}')
    lease = next(job["lease"] for job in popped.json["jobs"] if job["id"] == "leased")
    body = encoded({"lease": lease})
    for verb in ("finish", "release", "touch", "bury"):
        for token in ("put", "admin", "consume elsewhere"):
            answer = gateway.send("POST", f"/v1/{verb}", body, token=token)
            assert answer.status == 403, (verb, token)
    assert gateway.send("POST", "/v1/finish", body, token="orders").status == 204  # noqa: S106


def test_nothing_but_health_is_reachable_without_a_token(gateway: Gateway) -> None:
    for path, item in gateway.document["paths"].items():
        for method in item:
            target = path.replace("{topic}", "order").replace("{id}", "a")
            for token in (None, "rdt_unknown"):
                answer = gateway.send(method.upper(), target, b"{}", token=token)
                expected = {200} if path in {"/healthz", "/readyz"} and token is None else {401}
                assert answer.status in expected, (path, method)
    assert gateway.send("GET", "/openapi.json", token=None).status == 401


def test_a_page_of_another_site_reaches_no_route(gateway: Gateway) -> None:
    for path, item in gateway.document["paths"].items():
        for method in item:
            target = path.replace("{topic}", "order").replace("{id}", "a")
            headers = {"Origin": "http://evil.example", "Content-Type": "text/plain"}
            assert gateway.send(method.upper(), target, b"{}", headers).status == 403
