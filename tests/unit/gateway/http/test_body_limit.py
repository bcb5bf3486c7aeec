"""Bodies are read whole, within limits of size, time and memory."""

import asyncio

import pytest

from rabbitdelay.gateway.http.asgi import Message, Receive, Scope, Send
from rabbitdelay.gateway.http.body_limit import BodyLimit, BodyLimits
from tests.support.asgi import ask, request, scope_of

LIMITS = BodyLimits(max_bytes=10, max_bytes_in_memory=25, seconds=60)


async def echo(_scope: Scope, receive: Receive, send: Send) -> None:
    message = await receive()
    assert message["more_body"] is False
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


APP = BodyLimit(echo, LIMITS)


@pytest.mark.parametrize("parts", [[b""], [b"0123456789"], [b"01234", b"56789"], [b"0"] * 10])
def test_a_body_within_the_limit_arrives_whole(parts: list[bytes]) -> None:
    answer = request(APP, "POST", "/", {}, *parts)
    assert (answer.status, answer.body) == (200, b"".join(parts))


@pytest.mark.parametrize("length", ["11", "99999999999999999999"])
def test_a_declared_length_above_the_limit_is_refused_unread(length: str) -> None:
    answer = request(APP, "POST", "/", {"Content-Length": length}, b"0" * 11)
    assert answer.status == 413
    assert answer.json["type"] == "/problems/request-too-large"
    assert answer.reads == 0


@pytest.mark.parametrize("parts", [[b"0" * 11], [b"0123456789", b"0"], [b"0"] * 1000])
def test_a_body_that_exceeds_the_limit_is_refused_while_it_is_read(parts: list[bytes]) -> None:
    answer = request(APP, "POST", "/", {"Transfer-Encoding": "chunked"}, *parts)
    assert answer.status == 413
    assert answer.reads <= 11


def test_a_declared_length_that_is_too_small_does_not_help() -> None:
    assert request(APP, "POST", "/", {"Content-Length": "1"}, b"0" * 11).status == 413


@pytest.mark.parametrize(
    ("headers", "version"),
    [
        ([("Transfer-Encoding", "chunked"), ("Content-Length", "3")], "1.1"),
        ([("Transfer-Encoding", "chunked")], "1.0"),
        ([("Content-Length", "3"), ("Content-Length", "4")], "1.1"),
        ([("Content-Length", "-1")], "1.1"),
        ([("Content-Length", "0x3")], "1.1"),
        ([("Content-Length", "3, 3")], "1.1"),
        ([("Content-Length", "1" * 5000)], "1.1"),
    ],
)
def test_an_ambiguous_end_of_the_body_is_refused(
    headers: list[tuple[str, str]], version: str
) -> None:
    """A proxy in front may see it elsewhere, and what follows as another caller's request."""
    answer = request(APP, "POST", "/", headers, b"abc", http_version=version)
    assert answer.status == 400
    assert answer.header("connection") == "close"
    assert answer.reads == 0


def test_a_body_that_does_not_arrive_is_refused() -> None:
    async def silent() -> None:
        reads = 0

        async def receive() -> Message:
            nonlocal reads
            reads += 1
            if reads == 1:
                return {"type": "http.request", "body": b"01", "more_body": True}
            await asyncio.Event().wait()
            raise AssertionError

        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        await BodyLimit(echo, BodyLimits(max_bytes=10, max_bytes_in_memory=25, seconds=0.01))(
            scope_of(), receive, send
        )
        assert sent[0]["status"] == 408
        assert (b"connection", b"close") in sent[0]["headers"]

    asyncio.run(silent())


def test_a_client_that_leaves_before_its_body_ends_gets_no_answer() -> None:
    answer = asyncio.run(ask(APP, scope_of(), [b"01"], ends=False))
    assert answer.status is None


def test_all_bodies_together_have_a_limit() -> None:
    """A third body of ten bytes is refused while two are being served, and accepted afterwards."""

    async def three() -> None:
        may_answer = asyncio.Event()
        served: asyncio.Queue[str] = asyncio.Queue()

        async def slow(scope: Scope, receive: Receive, send: Send) -> None:
            served.put_nowait(scope["path"])
            await may_answer.wait()
            await echo(scope, receive, send)

        app = BodyLimit(slow, LIMITS)
        held = [asyncio.create_task(ask(app, scope_of(), [b"0" * 10])) for _ in range(2)]
        for _ in held:
            await served.get()
        refused = await ask(app, scope_of(), [b"0" * 10])
        assert refused.status == 503
        assert refused.header("retry-after") is not None
        assert refused.json["type"] == "/problems/overloaded"
        may_answer.set()
        assert [(await one).status for one in held] == [200, 200]
        assert (await ask(app, scope_of(), [b"0" * 10])).status == 200

    asyncio.run(three())


def test_refused_bodies_are_not_counted_for_ever() -> None:
    for _ in range(10):
        assert request(APP, "POST", "/", {}, b"0" * 11).status == 413
    assert request(APP, "POST", "/", {}, b"0" * 10).status == 200


def test_an_application_that_fails_gives_its_memory_back() -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/fail":
            raise ValueError(scope["path"])
        await echo(scope, receive, send)

    app = BodyLimit(failing, LIMITS)
    for _ in range(10):
        with pytest.raises(ValueError, match="/fail"):
            request(app, "POST", "/fail", {}, b"0" * 10)
    assert request(app, "POST", "/", {}, b"0" * 10).status == 200


def test_after_the_body_an_application_can_wait_for_the_client_to_leave() -> None:
    seen: list[str] = []

    async def waiting(_scope: Scope, receive: Receive, _send: Send) -> None:
        seen.extend([(await receive())["type"], (await receive())["type"]])

    asyncio.run(ask(BodyLimit(waiting, LIMITS), scope_of(), [b"01", b"23"], leaves=True))
    assert seen == ["http.request", "http.disconnect"]
