"""A relay on loopback between HTTP clients and a server, for constructing faults.

    with HttpRelay(gateway.port) as relay:
        relay.lose_answer("/v1/jobs/")      # the next request arrives, and its answer is lost
        held = relay.hold("/v1/finish")     # the next request waits here until held.let_go()

All methods may be called from any thread.
"""

import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

from tests.support.patience import patience

_LONGEST_SECONDS = 60
_OF_ONE_CONNECTION = {"connection", "host", "content-length", "transfer-encoding"}


class HeldRequest:
    """A request that the relay does not forward until the test says so."""

    def __init__(self) -> None:
        self._has_arrived, self._may_go = threading.Event(), threading.Event()

    def wait_until_it_arrives(self) -> None:
        """Return when the client has sent the request."""
        assert self._has_arrived.wait(patience(20)), "the request was not sent"

    def let_go(self) -> None:
        """Forward the request."""
        self._may_go.set()

    def arrive(self) -> None:
        """Wait, in the relay, for `let_go`."""
        self._has_arrived.set()
        self._may_go.wait(patience(_LONGEST_SECONDS))


class HttpRelay:
    """Forwards each request on a connection of its own, and notes it."""

    def __init__(self, port: int) -> None:
        self._arrivals: list[tuple[str, float]] = []
        self.answers: list[tuple[str, int]] = []
        """Method and path of each answered request, and the status of the answer."""
        self.tokens: set[str | None] = set()
        """The headers `Authorization` of all requests."""
        self._held: dict[str, HeldRequest] = {}
        self._lost: set[str] = set()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self, port)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The URL of the server, by way of this relay."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def requests(self) -> list[str]:
        """Method and path of each request."""
        return [request for request, _ in list(self._arrivals)]

    def count(self, request: str) -> int:
        """Return the number of requests with this method and path."""
        return self.requests.count(request)

    def shortest_pause(self, request: str) -> float:
        """Return the seconds between two requests with this method and path, at least."""
        times = [at for one, at in self._arrivals if one == request]
        return min(after - before for before, after in pairwise(times))

    def forget(self) -> None:
        """Forget what was noted of earlier requests."""
        for noted in (self._arrivals, self.answers, self.tokens):
            noted.clear()

    def hold(self, path: str) -> HeldRequest:
        """Hold back the next request whose path begins with `path`."""
        self._held[path] = HeldRequest()
        return self._held[path]

    def lose_answer(self, path: str) -> None:
        """Close the connection in place of the next answer to a path that begins with `path`."""
        self._lost.add(path)

    def receive(self, method: str, path: str, token: str | None) -> None:
        """Note a request of a client, and hold it back if the test wants that."""
        with self._lock:
            self._arrivals.append((f"{method} {path}", time.monotonic()))
            self.tokens.add(token)
            found = next((self._held.pop(one) for one in self._held if path.startswith(one)), None)
        if found is not None:
            found.arrive()

    def loses(self, path: str) -> bool:
        """Whether this answer is to be lost."""
        with self._lock:
            found = next((one for one in self._lost if path.startswith(one)), None)
            self._lost.discard(found or "")
            return found is not None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], relay: HttpRelay, target: int) -> None:
        super().__init__(address, _Handler)
        self.relay, self.target = relay, target

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - inherited
        """Say nothing of clients that have gone."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.relay.receive(self.command, self.path, self.headers.get("Authorization"))
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.server.target, timeout=patience(_LONGEST_SECONDS)
        )
        try:
            headers = {n: v for n, v in self.headers.items() if n.lower() not in _OF_ONE_CONNECTION}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            self._pass_on(answer, answer.read())
        finally:
            connection.close()

    do_DELETE = do_GET = do_POST = do_PUT = _forward  # noqa: N815 - called by these names

    def _pass_on(self, answer: http.client.HTTPResponse, body: bytes) -> None:
        self.server.relay.answers.append((f"{self.command} {self.path}", answer.status))
        if self.server.relay.loses(self.path):
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OF_ONE_CONNECTION:
                self.send_header(name, value)
        if answer.status != http.HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
