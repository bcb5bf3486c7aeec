"""A client of a gateway over HTTP, as a simple program would have one."""

import http.client
import json
from collections.abc import Sequence
from typing import Any

from tests.support.patience import patience

UNAVAILABLE = 503
NO_ANSWER = 0
"""Stands for the status of a request that got no answer."""


class HttpClient:
    """Sends each request on a connection of its own."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(
        self, method: str, path: str, value: object = None, *, seconds: float = 30
    ) -> tuple[int, Any]:
        """Send a request; return the status and the JSON of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience(seconds))
        body = None if value is None else json.dumps(value)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            return NO_ANSWER, None
        finally:
            connection.close()
        return answer.status, json.loads(content) if content else None

    def put(self, topic: str, body: object = None, **options: Any) -> str:  # noqa: ANN401 - passed on
        """Put a job; return its id."""
        status, answer = self.ask("POST", "/v1/jobs", {"topic": topic, "body": body, **options})
        assert status == http.client.CREATED, (status, answer)
        return str(answer["id"])

    def pop(
        self, topics: str | Sequence[str], wait: float = 0, max: int = 1
    ) -> list[dict[str, Any]]:
        """Pop jobs."""
        status, answer = self.ask(
            "POST", "/v1/pop", {"topics": topics, "wait": wait, "max": max}, seconds=wait + 30
        )
        assert status in (http.client.OK, http.client.NO_CONTENT), (status, answer)
        return list(answer["jobs"]) if answer else []

    def settle(self, verb: str, lease: str, **options: Any) -> int:  # noqa: ANN401 - passed on
        """Finish, release, touch or bury a job; return the status."""
        return self.ask("POST", f"/v1/{verb}", {"lease": lease, **options})[0]
