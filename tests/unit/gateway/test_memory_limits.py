"""What clients leave behind in a gateway has a limit."""

import asyncio
from typing import Any

import pytest

from rabbitdelay import Job
from rabbitdelay.core.work.responses import Response
from rabbitdelay.gateway import GatewaySettings, replies
from rabbitdelay.gateway.replies import Replies
from rabbitdelay.models import BYTES
from tests.support.gateway.memory_gateway import MemoryGateway, run


def a_job(job_id: str) -> Job:
    return Job("t", job_id, "token", 0, 0, None, b"0" * 1_000_000, BYTES)


class Client:
    """Stands for a client to which a response of ten bytes has come for every job."""

    def __init__(self) -> None:
        self.asked: list[Job] = []

    async def response(self, job: Job, *, wait: float) -> Response:
        del wait
        self.asked.append(job)
        return Response(job.id, b"0" * 10, BYTES)


def test_the_body_of_a_job_is_not_kept_for_its_response() -> None:
    client: Any = Client()
    kept = Replies(client, lambda: 0.0)
    kept.expect(a_job("a"))
    found = asyncio.run(kept.response("a", 0))
    assert found is not None
    assert client.asked[0].payload == b""


def test_the_oldest_responses_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "MOST_BYTES", 35)
    client: Any = Client()
    kept = Replies(client, lambda: 0.0)
    for job_id in "abcde":
        kept.expect(a_job(job_id))
    kept.expect(a_job("still waits"))
    for job_id in "abcde":
        assert asyncio.run(kept.response(job_id, 0)) is not None
    assert [job_id for job_id in "abcde" if job_id in kept] == ["c", "d", "e"]
    assert "still waits" in kept
    kept.expect(a_job("e"))  # put again: its response is another one
    assert asyncio.run(kept.response("e", 0)) is not None
    assert [job_id for job_id in "abcde" if job_id in kept] == ["c", "d", "e"]


def test_jobs_are_not_handed_out_beyond_the_memory_for_them() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        for _ in range(3):
            await gateway.put(body="0" * 600)
        (first,) = await gateway.pop()
        (second,) = await gateway.pop()
        refused = await gateway.post("/v1/pop", {"topics": "t"})
        assert (refused.status, refused.json["type"]) == (503, "/problems/overloaded")
        for job in (first, second):
            assert (await gateway.post("/v1/finish", {"lease": job["lease"]})).status == 204
        assert gateway.gateway.held.body_bytes == 0
        assert len(await gateway.pop()) == 1

    settings = GatewaySettings(max_body_bytes=1000, max_request_bytes=1000, max_memory_bytes=1100)
    run(scenario, settings)
