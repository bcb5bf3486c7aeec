"""Hostile clients of a gateway in a process of its own, over real connections.

No broker is needed: what is refused here never gets that far.
"""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme

from rabbitdelay.gateway.access.tokens import digest_of
from rabbitdelay.private_broker.machine.ports import pick_free
from tests.support.patience import patience, wait_until

ROOT = Path(__file__).parents[2]
PASSWORD = "hunter2hunter2"  # noqa: S105 - of no broker
OLD, NEW = "rdt_secret-old", "rdt_secret-new"
MAX_CONNECTIONS = 40
AUTHORITY = trustme.CA()


class Gateway:
    """A gateway with tokens and TLS, and its log."""

    def __init__(self, directory: Path) -> None:
        (self.port,) = pick_free(1)
        self._tokens, self._log = directory / "tokens", directory / "log"
        self._cert, self._key = directory / "cert.pem", directory / "key.pem"
        self.write_tokens(OLD)
        self.write_certificate("localhost")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                self._command(),
                cwd=ROOT,
                env=os.environ | {"RABBITDELAY_URL": f"amqp://guest:{PASSWORD}@localhost:1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _command(self) -> list[str]:
        options = {
            "--port": str(self.port),
            "--tokens": str(self._tokens),
            "--tls-cert": str(self._cert),
            "--tls-key": str(self._key),
            "--max-connections": str(MAX_CONNECTIONS),
            "--max-body": "10KiB",
            "--max-request": "100KiB",
            "--grace": "0s",
        }
        texts = [text for option in options.items() for text in option]
        return [sys.executable, "-m", "rabbitdelay", "serve", *texts]

    @property
    def log(self) -> str:
        return self._log.read_text()

    def write_tokens(self, token: str) -> None:
        self._tokens.write_text(f"test put,consume,admin * sha256:{_hash(token)}\n")
        self._tokens.chmod(0o600)

    def write_certificate(self, name: str) -> None:
        issued = AUTHORITY.issue_cert(name)
        self._cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(self._key)

    def spoil_files(self) -> None:
        self._tokens.write_text(f"test put * {OLD}\n")
        self._cert.write_text("nonsense")

    def hang_up(self, says: str) -> None:
        """Send SIGHUP, and wait for a line in the log."""
        before = self.log.count(says)
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.log.count(says) > before, seconds=10, what=f"{says} in the log")

    def connect(self, name: str = "localhost") -> ssl.SSLSocket:
        context = ssl.create_default_context()
        AUTHORITY.configure_trust(context)
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=patience(20))
        try:
            return context.wrap_socket(raw, server_hostname=name)
        except BaseException:
            raw.close()
            raise

    def status(self, path: str, token: str | None = None, name: str = "localhost") -> int:
        headers = f"Authorization: Bearer {token}\r\n" if token else ""
        with self.connect(name) as peer:
            peer.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
            return answer(peer)[0]

    def is_alive(self) -> bool:
        assert self.process.poll() is None, self.log
        try:
            return self.status("/healthz") == 200
        except OSError:
            return False


def _hash(token: str) -> str:
    return digest_of(token.encode()).hex()


def answer(peer: socket.socket) -> tuple[int, bytes]:
    """Return status and body of an answer."""
    response = http.client.HTTPResponse(peer)
    response.begin()
    return response.status, response.read()


def kind(body: bytes) -> str:
    found: str = json.loads(body)["type"]
    return found.removeprefix("/problems/")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    running = Gateway(tmp_path_factory.mktemp("gateway"))
    try:
        wait_until(running.is_alive, seconds=30, what="a gateway that is alive")
        yield running
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(patience(20)) == 0
    finally:
        running.process.kill()
        running.process.wait()
    log = running.log
    assert "Traceback" not in log
    assert "secret" not in log
    assert PASSWORD not in log
    assert all(json.loads(line) for line in log.splitlines())


HEAD = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {OLD}\r\n"


def test_a_large_body_is_refused_before_it_is_sent(gateway: Gateway) -> None:
    with gateway.connect() as peer:
        peer.sendall(f"{HEAD}Content-Length: 1000000000\r\n\r\n".encode())
        status, body = answer(peer)
    assert (status, kind(body)) == (413, "request-too-large")


def test_a_client_that_sends_all_of_a_large_body_sees_the_refusal(gateway: Gateway) -> None:
    content = b"0" * 5_000_000
    with gateway.connect() as peer:
        peer.sendall(f"{HEAD}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        assert answer(peer)[0] == 413
        peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer(peer)[0] == 200


def test_a_body_without_a_length_is_refused_when_it_is_too_large(gateway: Gateway) -> None:
    with gateway.connect() as peer:
        peer.sendall(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
        peer.sendall(b"10000\r\n" + b"0" * 0x10000 + b"\r\n")
        peer.sendall(b"10000\r\n" + b"0" * 0x10000 + b"\r\n")
        status, body = answer(peer)
    assert (status, kind(body)) == (413, "request-too-large")


def test_a_body_without_a_token_is_not_read(gateway: Gateway) -> None:
    with gateway.connect() as peer:
        peer.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n")
        status, body = answer(peer)
    assert (status, kind(body)) == (401, "token-required")


def test_a_flood_of_headers_is_refused(gateway: Gateway) -> None:
    with gateway.connect() as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: 0\r\n" * 5_000)
        status, body = answer(peer)
    assert (status, kind(body)) == (431, "headers-too-large")


def test_both_lengths_are_refused(gateway: Gateway) -> None:
    with gateway.connect() as peer:
        lengths = "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        peer.sendall(f"{HEAD}{lengths}".encode())
        status, body = answer(peer)
        assert peer.recv(1) == b""
    assert (status, kind(body)) == (400, "ambiguous-length")


def test_what_is_not_tls_or_not_http_harms_no_other_client(gateway: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=patience(20)) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" not in plain.recv(1000)
    with gateway.connect() as peer:
        peer.sendall(b"\x00\xff nonsense\r\n\r\n")
        assert answer(peer)[0] == 400
    assert gateway.status("/healthz") == 200


def test_clients_that_send_nothing_do_not_stop_others(gateway: Gateway) -> None:
    with ExitStack() as stack:
        stalled = [stack.enter_context(gateway.connect()) for _ in range(MAX_CONNECTIONS // 2)]
        for peer in stalled:
            peer.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: lo")
        assert gateway.status("/healthz") == 200
        assert gateway.status("/openapi.json", OLD) == 200


def test_more_connections_than_allowed_are_refused(gateway: Gateway) -> None:
    with ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS):
            stack.enter_context(gateway.connect()).sendall(b"G")
        assert gateway.status("/healthz") == 503
    wait_until(lambda: gateway.status("/healthz") == 200, seconds=20, what="a free connection")


def test_a_hangup_reads_tokens_and_certificate_again(gateway: Gateway) -> None:
    assert (gateway.status("/openapi.json", OLD), gateway.status("/openapi.json", NEW)) == (
        200,
        401,
    )
    gateway.write_tokens(NEW)
    gateway.write_certificate("gateway.example")
    gateway.hang_up("tokens: reloaded")
    assert gateway.status("/openapi.json", NEW, "gateway.example") == 200
    assert gateway.status("/openapi.json", OLD, "gateway.example") == 401
    gateway.spoil_files()
    gateway.hang_up("tokens: not reloaded")
    assert gateway.status("/openapi.json", NEW, "gateway.example") == 200
    gateway.write_tokens(OLD)
    gateway.write_certificate("localhost")
    gateway.hang_up("tokens: reloaded")
    assert gateway.status("/openapi.json", OLD) == 200


def test_without_tokens_it_does_not_serve_other_machines() -> None:
    command = [sys.executable, "-m", "rabbitdelay", "serve", "--host", "0.0.0.0", "--port", "0"]  # noqa: S104
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=patience(30), check=False
    )
    assert done.returncode == 2
    assert "without tokens" in done.stderr
    assert "Traceback" not in done.stderr
