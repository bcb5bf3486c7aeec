"""A small client of RabbitMQ's management API."""

import json
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

from tests.support.patience import patience

_TIMEOUT_SECONDS = patience(10)


@dataclass(frozen=True, slots=True)
class Management:
    """The management API at an address, for one virtual host."""

    url: str
    user: str = "guest"
    password: str = "guest"  # noqa: S105 - RabbitMQ's own default
    vhost: str = "/"

    @classmethod
    def beside(cls, amqp_url: str) -> Self:
        """Return the API of the broker at this AMQP URL, assumed to listen on the default port."""
        parts = urlsplit(amqp_url)
        return cls(
            f"http://{parts.hostname}:15672/",
            unquote(parts.username or "guest"),
            unquote(parts.password or "guest"),
            unquote(parts.path.removeprefix("/")) or "/",
        )

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON is anything
        """Return the answer to a GET of this path below /api/."""
        return json.loads(self._call("GET", path))

    def put(self, path: str, body: object) -> None:
        """Create or replace the object at this path below /api/."""
        self._call("PUT", path, json.dumps(body).encode())

    def post(self, path: str, body: object) -> None:
        """Post to this path below /api/."""
        self._call("POST", path, json.dumps(body).encode())

    def remove(self, path: str) -> None:
        """Delete the object at this path below /api/."""
        self._call("DELETE", path)

    def names(self, kind: str, prefix: str) -> list[str]:
        """Return the names of all `queues` or `exchanges` with this prefix."""
        found = self.get(f"{kind}/{quote(self.vhost, safe='')}?columns=name")
        return [item["name"] for item in found if item["name"].startswith(prefix)]

    def delete(self, kind: str, name: str) -> None:
        """Delete a queue or an exchange, which may already be gone."""
        try:
            self._call("DELETE", f"{kind}/{quote(self.vhost, safe='')}/{quote(name, safe='')}")
        except HTTPError as error:
            error.close()
            if error.code != 404:
                raise

    def delete_namespace(self, namespace: str) -> None:
        """Delete every queue and exchange of a namespace; do nothing if the API is unreachable."""
        try:
            found = [
                (kind, name)
                for kind in ("queues", "exchanges")
                for name in self.names(kind, f"{namespace}.")
            ]
        except URLError:
            return
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda item: self.delete(*item), found))

    def _call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        credentials = b64encode(f"{self.user}:{self.password}".encode()).decode()
        headers = {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"}
        url = f"{self.url}api/{path}"
        request = Request(url, body, headers, method=method)  # noqa: S310 - always http
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310 - always http
            answer: bytes = response.read()
        return answer
