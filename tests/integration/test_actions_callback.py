"""Callbacks: URLs chosen by putters, which are called only if the operator allows them."""

import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trustme

from rabbitdelay.actions.webhook.allow_list import AllowList
from rabbitdelay.actions.webhook.host_lookup import Resolver, look_up
from rabbitdelay.actions.webhook.webhook import Webhook
from rabbitdelay.errors import Bury, Retry
from tests.support.patience import patience
from tests.unit.actions.test_job_facts import StubJob

HOST = "hook.example"
"""A name that no DNS knows: a request that arrives by this name was not looked up again."""

TLS = ssl.create_default_context()
"""Shared, because reading the system's certificate authorities takes a tenth of a second."""


class Endpoint(ThreadingHTTPServer):
    """An HTTP server on loopback that records the hosts it was addressed as."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hosts: list[str] = []
        self.server_names: list[str] = []

    @property
    def port(self) -> int:
        return self.server_port

    def use_tls(self, certificate: trustme.LeafCert) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        context.sni_callback = lambda _socket, name, _context: self.server_names.append(str(name))
        self.socket = context.wrap_socket(self.socket, server_side=True)

    def handle_error(self, *_: object) -> None:
        """Ignore clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.hosts.append(self.headers["Host"])
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Names:
    """A resolver that returns one answer after the other."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, name: str) -> list[str]:
        self.asked.append(name)
        return self._answers.pop(0)


def everywhere(*, allow_private: bool) -> AllowList:
    return AllowList.parse(["*:*"], allow_private=allow_private)


def call(url: str | None, allowed: AllowList, resolver: Resolver = look_up) -> None:
    Webhook(allowed=allowed, resolver=resolver, tls_context=TLS)(StubJob(callback=url))


def test_an_allowed_callback_is_called(endpoint: Endpoint) -> None:
    allowed = AllowList.parse([f"127.0.0.1:{endpoint.port}"], allow_private=True)
    call(f"http://127.0.0.1:{endpoint.port}/", allowed)
    assert endpoint.hosts == [f"127.0.0.1:{endpoint.port}"]


def test_the_operators_url_needs_no_permission_and_takes_precedence(endpoint: Endpoint) -> None:
    url = f"http://localhost:{endpoint.port}/"
    Webhook(url)(StubJob(callback="http://example.com/"))
    assert endpoint.hosts == [f"localhost:{endpoint.port}"]


@pytest.mark.parametrize("callback", [None, ""])
def test_a_job_without_a_callback_is_buried(callback: str | None) -> None:
    with pytest.raises(Bury, match="the job has no callback"):
        call(callback, everywhere(allow_private=True))


def test_no_callback_is_called_without_a_list(endpoint: Endpoint) -> None:
    url = f"http://127.0.0.1:{endpoint.port}/"
    with pytest.raises(Bury, match=rf"--allow-host 127\.0\.0\.1:{endpoint.port}$"):
        call(url, AllowList())
    with pytest.raises(Bury, match="--allow-host"):
        call(url, AllowList(allow_private=True))
    assert endpoint.hosts == []


def test_a_host_that_is_not_listed_is_not_looked_up() -> None:
    names = Names()
    with pytest.raises(Bury, match=r"--allow-host other\.example$"):
        call("https://other.example/", AllowList.parse([HOST]), names)
    assert names.asked == []


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "localhost.", "LOCALHOST", "[::1]", "[::ffff:127.0.0.1]"),
        *("0.0.0.0", "①②⑦.⓪.⓪.①"),  # noqa: S104 - to be refused
    ],
)
def test_a_private_address_is_not_called(endpoint: Endpoint, host: str) -> None:
    with pytest.raises(Bury, match=r"not a public address: .*--allow-private"):
        call(f"http://{host}:{endpoint.port}/", everywhere(allow_private=False))
    assert endpoint.hosts == []


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f000001", "017700000001", "me@[::1]"])
def test_a_disguised_address_is_not_called(endpoint: Endpoint, host: str) -> None:
    with pytest.raises(Bury, match="the job's callback is invalid"):
        call(f"http://{host}:{endpoint.port}/", everywhere(allow_private=True))
    assert endpoint.hosts == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://localhost/", "http://", "nonsense"])
def test_an_invalid_url_is_buried(url: str) -> None:
    with pytest.raises(Bury, match="the job's callback is invalid"):
        call(url, everywhere(allow_private=True))


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"], ["::1"]]
)
def test_a_name_with_any_private_address_is_not_called(
    endpoint: Endpoint, addresses: list[str]
) -> None:
    with pytest.raises(Bury, match="not a public address"):
        call(f"http://{HOST}:{endpoint.port}/", everywhere(allow_private=False), Names(addresses))
    assert endpoint.hosts == []


def test_a_name_is_looked_up_once_and_the_checked_address_is_called(endpoint: Endpoint) -> None:
    """A second lookup for the connection would allow DNS rebinding."""
    names = Names(["127.0.0.1"], ["192.0.2.1"])
    call(f"http://{HOST}:{endpoint.port}/", everywhere(allow_private=True), names)
    assert names.asked == [HOST]
    assert endpoint.hosts == [f"{HOST}:{endpoint.port}"]


def test_the_next_address_is_tried_if_one_does_not_answer(endpoint: Endpoint) -> None:
    names = Names(["127.0.0.2", "127.0.0.1"])
    call(f"http://{HOST}:{endpoint.port}/", everywhere(allow_private=True), names)
    assert len(endpoint.hosts) == 1


def fail(_name: str) -> list[str]:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def test_a_name_that_is_not_found_is_retried() -> None:
    webhook = Webhook(allowed=everywhere(allow_private=True), resolver=fail)
    with pytest.raises(Retry, match=r"request to http://hook\.example failed: .*resolved: .*known"):
        webhook(StubJob(callback=f"http://{HOST}/"))
    with pytest.raises(Retry, match="no address"):
        call(f"http://{HOST}/", everywhere(allow_private=True), Names([]))


def test_a_name_that_takes_too_long_to_look_up_is_retried() -> None:
    released = threading.Event()

    def wait(_name: str) -> list[str]:
        released.wait(patience(10))
        return []

    webhook = Webhook(allowed=everywhere(allow_private=True), resolver=wait)
    with pytest.raises(Retry, match=r"timed out|not respond within 0\.2 s"):
        webhook(StubJob(callback=f"http://{HOST}/", time_left=0.2))
    released.set()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def tls_webhook(authority: trustme.CA | None) -> Webhook:
    context = ssl.create_default_context()
    if authority is not None:
        authority.configure_trust(context)
    allowed = everywhere(allow_private=True)
    return Webhook(allowed=allowed, resolver=Names(["127.0.0.1"]), tls_context=context)


def test_tls_checks_the_name_and_not_the_address(endpoint: Endpoint, authority: trustme.CA) -> None:
    endpoint.use_tls(authority.issue_cert(HOST))
    tls_webhook(authority)(StubJob(callback=f"https://{HOST}:{endpoint.port}/"))
    assert endpoint.hosts == [f"{HOST}:{endpoint.port}"]
    assert endpoint.server_names == [HOST]


@pytest.mark.parametrize("name", ["other.example", "127.0.0.1"])
def test_a_certificate_of_another_name_is_refused(
    endpoint: Endpoint, authority: trustme.CA, name: str
) -> None:
    endpoint.use_tls(authority.issue_cert(name))
    with pytest.raises(Retry, match=r"certificate verification failed: .*mismatch"):
        tls_webhook(authority)(StubJob(callback=f"https://{HOST}:{endpoint.port}/"))
    assert endpoint.hosts == []


def test_a_certificate_of_an_unknown_authority_is_refused(
    endpoint: Endpoint, authority: trustme.CA
) -> None:
    endpoint.use_tls(authority.issue_cert(HOST))
    with pytest.raises(Retry, match="certificate verification failed"):
        Webhook(f"https://localhost:{endpoint.port}/")(StubJob())
    assert endpoint.hosts == []


def test_a_tls_handshake_without_an_answer_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(Retry, match=r"did not respond within 0\.3 s"):
            Webhook(url)(StubJob(time_left=0.3))
