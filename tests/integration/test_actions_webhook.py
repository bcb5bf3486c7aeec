"""Webhooks against real servers: the request, and the meaning of each answer for the job."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from rabbitdelay.actions.webhook.webhook import Webhook
from rabbitdelay.errors import Bury, InvalidConfiguration, LeaseLost, Retry
from tests.support.patience import patience, wait_until
from tests.unit.actions.test_job_facts import StubJob

MEBIBYTE = 1024 * 1024
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
TLS = ssl.create_default_context()
"""Shared, because reading the system's certificate authorities takes a tenth of a second."""
Conversation = Callable[[socket.socket, bytes], None]


def post_to(url: str) -> Webhook:
    return Webhook(url, tls_context=TLS)


def answering(answer: bytes) -> Conversation:
    return lambda connection, _request: connection.sendall(answer)


class Server:
    """A server on loopback that reads a whole request and then runs its conversation."""

    def __init__(self, conversation: Conversation, *, reads_body: bool = True) -> None:
        self._conversation = conversation
        self._reads_body = reads_body
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        self.requests: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def headers(self) -> dict[str, str]:
        """Return the headers of the last request."""
        head = self.requests[-1].partition(b"\r\n\r\n")[0].decode("ascii")
        pairs = [line.split(": ", 1) for line in head.split("\r\n")[1:]]
        assert len({name.lower() for name, _ in pairs}) == len(pairs)
        return dict(pairs)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            request = _read_request(connection, reads_body=self._reads_body)
            self.requests.append(request)
            self._conversation(connection, request)


def _read_request(connection: socket.socket, *, reads_body: bool) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request:
        request += connection.recv(65_536)
    head, _, body = request.partition(b"\r\n\r\n")
    lines = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while reads_body and len(body) < int(lines[b"Content-Length"]):
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


ServerFactory = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[ServerFactory]:
    with ExitStack() as stack:

        def start(conversation: Conversation, *, reads_body: bool = True) -> Server:
            server = Server(conversation, reads_body=reads_body)
            stack.callback(server.close)
            return server

        yield start


def test_the_body_is_posted_with_the_properties_of_the_job(serve: ServerFactory) -> None:
    server = serve(answering(OK))
    post_to(f"{server.url}?key=ä")(StubJob(payload=b"\x00\xff{}"))
    (request,) = server.requests
    assert request.startswith(b"POST /hook?key=%C3%A4 HTTP/1.1\r\n")
    assert request.endswith(b"\r\n\r\n\x00\xff{}")
    headers = server.headers()
    assert headers.pop("User-Agent").startswith("rabbitdelay/")
    assert headers == {
        "Host": f"127.0.0.1:{server.port}",
        "Connection": "close",
        "Accept-Encoding": "identity",
        "Content-Length": "4",
        "Content-Type": "application/json",
        "Rabbitdelay-Id": "order-42",
        "Rabbitdelay-Topic": "orderclose",
        "Rabbitdelay-Attempt": "2",
        "Rabbitdelay-Due": "2027-01-15T08:00:30.250Z",
        "Idempotency-Key": "order-42-0123456789abcdef",
    }


def test_an_id_cannot_add_headers(serve: ServerFactory) -> None:
    server = serve(answering(OK))
    job = StubJob(
        id="50%\r\nX-Evil: 1\r\n\r\ngröße 🐇\x7f", content_type="text/x; a=%\r\nX-Evil: 2"
    )
    post_to(server.url)(job)
    headers = server.headers()
    expected = "50%25%0D%0AX-Evil:%201%0D%0A%0D%0Agr%C3%B6%C3%9Fe%20%F0%9F%90%87%7F"
    assert headers["Rabbitdelay-Id"] == expected
    assert headers["Idempotency-Key"] == f"{expected}-0123456789abcdef"
    assert headers["Content-Type"] == "text/x; a=%%0D%0AX-Evil: 2"
    assert "X-Evil" not in headers


def test_the_idempotency_key_is_that_of_the_put(serve: ServerFactory) -> None:
    server = serve(answering(OK))
    keys = []
    for job in (StubJob(attempt=1), StubJob(attempt=2), StubJob(token="x")):  # noqa: S106 - no secret
        post_to(server.url)(job)
        keys.append(server.headers()["Idempotency-Key"])
    assert keys[0] == keys[1] != keys[2]
    post_to(server.url)(StubJob(token=""))
    assert server.headers()["Idempotency-Key"] == "order-42"


@pytest.mark.parametrize("status", [b"200 OK", b"204 No Content", b"202"])
def test_a_success_status_finishes_the_job(serve: ServerFactory, status: bytes) -> None:
    server = serve(answering(b"HTTP/1.1 " + status + b"\r\n\r\n"))
    post_to(server.url)(StubJob(payload=b"x" * MEBIBYTE))
    assert len(server.requests) == 1


def test_a_gone_status_buries_the_job(serve: ServerFactory) -> None:
    server = serve(answering(b"HTTP/1.1 410 Gone\r\n\r\nthe order\nis gone"))
    with pytest.raises(Bury, match="returned 410 Gone: the order is gone"):
        post_to(server.url)(StubJob())


@pytest.mark.parametrize("status", [b"429 Slow", b"503 Busy"])
def test_retry_after_is_obeyed(serve: ServerFactory, status: bytes) -> None:
    server = serve(answering(b"HTTP/1.1 " + status + b"\r\nRetry-After: 17\r\n\r\n"))
    with pytest.raises(Retry) as caught:
        post_to(server.url)(StubJob())
    assert caught.value.delay == 17


def test_retry_after_may_be_a_date(serve: ServerFactory) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True).encode()
    server = serve(answering(b"HTTP/1.1 503 Busy\r\nRetry-After: " + date + b"\r\n\r\n"))
    with pytest.raises(Retry) as caught:
        post_to(server.url)(StubJob())
    assert isinstance(caught.value.delay, float)
    assert 80 < caught.value.delay <= 100


def test_a_redirect_is_not_followed(serve: ServerFactory) -> None:
    elsewhere = serve(answering(OK))
    location = f"Location: {elsewhere.url}\r\n\r\n".encode()
    server = serve(answering(b"HTTP/1.1 302 Found\r\n" + location))
    with pytest.raises(Retry, match=rf"{elsewhere.port}/hook\): redirects are not followed"):
        post_to(server.url)(StubJob())
    assert elsewhere.requests == []


def test_a_long_answer_is_truncated(serve: ServerFactory) -> None:
    head = b"HTTP/1.1 500 Oops\r\nContent-Length: 1000000000\r\n\r\n"
    server = serve(lambda connection, _: connection.sendall(head + b"x" * MEBIBYTE * 8))
    with pytest.raises(Retry, match=r"500 Internal Server Error: x{199}…$"):
        post_to(server.url)(StubJob())


def test_an_answer_may_arrive_before_the_body_is_read(serve: ServerFactory) -> None:
    gone = answering(b"HTTP/1.1 410 Gone\r\n\r\n")
    server = serve(gone, reads_body=False)
    with pytest.raises(Bury, match="410"):
        post_to(server.url)(StubJob(payload=b"x" * MEBIBYTE * 8))


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\x00" * 70_000]
)
def test_an_invalid_answer_is_a_failure(serve: ServerFactory, answer: bytes) -> None:
    server = serve(answering(answer))
    with pytest.raises(Retry, match=f"request to http://127.0.0.1:{server.port} failed: .+"):
        post_to(server.url)(StubJob())


def test_a_refused_connection_is_retried() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(Retry, match=r"failed: .*refused"):
            post_to(f"http://127.0.0.1:{taken.getsockname()[1]}/")(StubJob())


def test_the_environments_proxy_is_not_used(
    serve: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = serve(answering(OK))
    server = serve(answering(OK))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    post_to(server.url)(StubJob())
    assert (len(server.requests), proxy.requests) == (1, [])


def drip(head: bytes) -> Conversation:
    """Return a conversation that sends a head, and then a byte now and then for ever."""

    def converse(connection: socket.socket, _request: bytes) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(b"x")
            time.sleep(0.05)

    return converse


def test_a_server_that_drips_its_headers_times_out(serve: ServerFactory) -> None:
    server = serve(drip(b"HTTP/1.1 200 OK\r\nX-Long: "))
    started = time.monotonic()
    with pytest.raises(Retry, match=r"did not respond within 0\.9 s"):
        post_to(server.url)(StubJob(time_left=1.0))
    assert 0.8 < time.monotonic() - started < patience(3)


def test_a_server_that_drips_its_body_has_answered(serve: ServerFactory) -> None:
    started = time.monotonic()
    post_to(serve(drip(b"HTTP/1.1 200 OK\r\n\r\n")).url)(StubJob(time_left=0.5))
    with pytest.raises(Retry, match="returned 500 Internal Server Error: xxx"):
        post_to(serve(drip(b"HTTP/1.1 500 Oops\r\n\r\n")).url)(StubJob(time_left=0.5))
    assert time.monotonic() - started < patience(3)


def never(connection: socket.socket, _request: bytes) -> None:
    connection.settimeout(patience(30))
    connection.recv(1)  # returns when the client has disconnected


@pytest.mark.parametrize("reads_body", [True, False])
def test_a_server_that_never_answers_times_out(serve: ServerFactory, *, reads_body: bool) -> None:
    """A server that never reads the request times out too."""

    def hold(_connection: socket.socket, _request: bytes) -> None:
        released.wait(patience(30))

    released = threading.Event()
    server = serve(hold, reads_body=reads_body)
    started = time.monotonic()
    with pytest.raises(Retry, match="did not respond within"):
        post_to(server.url)(StubJob(time_left=0.5, payload=b"x" * MEBIBYTE * 8))
    assert time.monotonic() - started < patience(3)
    released.set()


def test_incomplete_headers_are_not_an_answer(serve: ServerFactory) -> None:
    def begin(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-More: follows\r\n")
        never(connection, request)

    with pytest.raises(Retry, match="did not respond within"):
        post_to(serve(begin).url)(StubJob(time_left=0.3))


def test_a_lost_lease_ends_the_exchange(serve: ServerFactory) -> None:
    server = serve(never)
    job = StubJob()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(post_to(server.url), job)
        wait_until(lambda: server.requests, what="the request has arrived")
        job.lose()
        assert isinstance(future.exception(timeout=patience(5)), Retry)


def test_a_lost_job_is_not_posted(serve: ServerFactory) -> None:
    server = serve(answering(OK))
    with pytest.raises(LeaseLost):
        post_to(server.url)(StubJob(time_left=0.0))
    assert server.requests == []


def test_a_lease_lost_before_the_connection_is_made_ends_the_call(serve: ServerFactory) -> None:
    server = serve(answering(OK))
    with pytest.raises(Retry):
        post_to(server.url)(StubJob(is_lost=True))
    assert server.requests == []


@pytest.mark.parametrize("url", ["example.com", "ftp://example.com", "http://me:s3cret@localhost"])
def test_a_url_that_cannot_be_called_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match="the webhook URL is invalid") as caught:
        post_to(url)
    assert "s3cret" not in str(caught.value)
