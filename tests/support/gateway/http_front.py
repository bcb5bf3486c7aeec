"""The gateway behind the interface of the client, so that one test runs against both.

Only what makes sense over HTTP is there: verbs, and the facts of jobs. Errors of the gateway are
raised as the errors of the client that they stand for.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self
from urllib.parse import quote

from rabbitdelay.core.administration.counts import TopicCounts
from rabbitdelay.errors import InvalidJob, LeaseLost, RabbitDelayError, TopologyMissing
from tests.support.gateway.http_client import HttpClient

ERRORS: dict[int, type[RabbitDelayError]] = {409: LeaseLost, 422: InvalidJob, 404: TopologyMissing}
Parsed = dict[str, Any]


@dataclass(frozen=True)
class HttpPut:
    """A job that was put."""

    id: str
    due: datetime


@dataclass(frozen=True)
class HttpBuried:
    """A buried job."""

    id: str
    reason: str
    attempt: int


class HttpJob:
    """A job that was popped."""

    def __init__(self, client: "HttpFrontClient", facts: Parsed) -> None:
        self._client = client
        self._lease: str = facts["lease"]
        self.id: str = facts["id"]
        self.topic: str = facts["topic"]
        self.body: Any = facts.get("body")
        self.attempt: int = facts["attempt"]
        self.due = datetime.fromisoformat(facts["due"])
        self.time_left: float = facts["time_left"]
        self.ttr = timedelta(seconds=facts["ttr"])
        self.headers: Parsed = facts["headers"]

    def finish(self) -> None:
        self._settle("finish")

    def release(self, delay: float | timedelta | None = None) -> None:
        options = {} if delay is None else {"delay": _seconds(delay)}
        self._settle("release", **options)

    def touch(self) -> None:
        answer = self._settle("touch")
        self._lease, self.time_left = answer["lease"], answer["time_left"]

    def bury(self, reason: str) -> None:
        self._settle("bury", reason=reason)

    def _settle(self, verb: str, **options: object) -> Any:  # noqa: ANN401 - JSON
        return self._client.post(f"/v1/{verb}", {"lease": self._lease, **options})


class HttpBuriedJobs:
    """The buried jobs of a topic."""

    def __init__(self, client: "HttpFrontClient", topic: str) -> None:
        self._client = client
        self._path = f"/v1/topics/{quote(topic, safe='')}/buried"

    def count(self) -> int:
        return int(self._client.get(self._path)["total"])

    def list(self) -> list[HttpBuried]:
        found = self._client.get(f"{self._path}?limit=1000")["jobs"]
        return [HttpBuried(job["id"], job["reason"], job["attempt"]) for job in found]

    def kick(self, *, id: str | None = None) -> Any:  # noqa: ANN401 - JSON
        return self._client.post(f"{self._path}/kick", _chosen(id))

    def drop(self, *, id: str | None = None) -> int:
        return int(self._client.post(f"{self._path}/drop", _chosen(id))["dropped"])


class HttpFrontClient:
    """The client's interface, over HTTP."""

    def __init__(self, port: int) -> None:
        self._http = HttpClient(port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: a client over HTTP has nothing to close."""

    def put(self, topic: str, body: object = None, **options: Any) -> HttpPut:  # noqa: ANN401 - passed on
        """Put a job."""
        given = {name: _as_json(value) for name, value in options.items()}
        answer = self.post("/v1/jobs", {"topic": topic, "body": body, **given})
        return HttpPut(answer["id"], datetime.fromisoformat(answer["due"]))

    def put_many(self, specs: Iterable[Any]) -> int:
        """Put many jobs in one request."""
        jobs = [{"topic": spec.topic, "body": spec.body} for spec in specs]
        return len(self.post("/v1/jobs/batch", {"jobs": jobs})["jobs"])

    def replace(self, topic: str, body: object = None, *, id: str, **options: Any) -> HttpPut:  # noqa: ANN401 - passed on
        """Replace a job."""
        value = {"topic": topic, "body": body, **options}
        answer = self._ask("PUT", f"/v1/jobs/{quote(id, safe='')}", value)
        return HttpPut(answer["id"], datetime.fromisoformat(answer["due"]))

    def delete(self, id: str) -> None:
        """Delete a job."""
        self._ask("DELETE", f"/v1/jobs/{quote(id, safe='')}")

    def delete_many(self, ids: Iterable[str]) -> int:
        """Delete many jobs in one request."""
        return int(self.post("/v1/jobs/delete", {"ids": list(ids)})["deleted"])

    def pop(self, topics: str | Sequence[str], *, max: int | None = None, wait: float = 0) -> Any:  # noqa: ANN401 - as the client's
        """Pop a job, or several."""
        value = {"topics": topics, "wait": min(wait, 50), "max": 1 if max is None else max}
        answer = self.post("/v1/pop", value)
        found = [HttpJob(self, facts) for facts in answer["jobs"]] if answer else []
        return found if max is not None else found[0] if found else None

    def pause(self, topic: str) -> None:
        self.post(f"/v1/topics/{topic}/pause")

    def resume(self, topic: str) -> None:
        self.post(f"/v1/topics/{topic}/resume")

    def purge(self, topic: str) -> int:
        return int(self.post(f"/v1/topics/{topic}/purge")["removed"])

    def count(self, topic: str) -> TopicCounts:
        """Count the jobs of a topic."""
        facts = self.get(f"/v1/topics/{topic}")
        return TopicCounts(topic, facts["ready"], None, facts["buried"], consumers=0)

    def buried(self, topic: str) -> HttpBuriedJobs:
        return HttpBuriedJobs(self, topic)

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        return self._ask("GET", path)

    def post(self, path: str, value: object = None) -> Any:  # noqa: ANN401 - JSON
        return self._ask("POST", path, value)

    def _ask(self, method: str, path: str, value: object = None) -> Any:  # noqa: ANN401 - JSON
        status, answer = self._http.ask(method, path, value, seconds=90)
        if status in ERRORS:
            raise ERRORS[status](answer["detail"])
        assert 200 <= status < 300, (status, answer)
        return answer


def _chosen(id: str | None) -> dict[str, object]:
    return {"all": True} if id is None else {"ids": [id]}


def _as_json(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else _seconds(value)


def _seconds(value: Any) -> Any:  # noqa: ANN401 - anything
    return value.total_seconds() if isinstance(value, timedelta) else value
