"""Topics and unrouted jobs over HTTP, and the health of the gateway."""

import pytest

from tests.support.gateway.memory_gateway import MemoryGateway, run


def test_the_jobs_of_a_topic_are_counted_by_state() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        for _ in range(3):
            await gateway.put()
        (job,) = await gateway.pop()
        await gateway.post("/v1/bury", {"lease": job["lease"]})
        counts = (await gateway.get("/v1/topics/t")).json
        assert (counts["ready"], counts["buried"], counts["paused"]) == (2, 1, False)

    run(scenario)


def test_a_topic_that_does_not_exist_is_not_found() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        assert (await gateway.get("/v1/topics/nope")).status == 404
        assert (await gateway.get("/v1/topics/a%20b")).status == 422
        assert (await gateway.get("/v1/topics/nope/buried")).status == 404
        kick = await gateway.post("/v1/topics/nope/buried/kick", {"all": True})
        assert kick.status == 404

    run(scenario)


def test_all_topics_cannot_be_listed_without_the_management_api() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        answer = await gateway.get("/v1/topics?delayed=true")
        assert answer.status == 503
        assert answer.json["type"] == "/problems/management-unreachable"
        assert (await gateway.get("/v1/topics?delaid=true")).status == 422

    run(scenario)


def test_a_paused_topic_hands_out_nothing_until_it_is_resumed() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.put()
        assert (await gateway.post("/v1/topics/t/pause")).status == 204
        assert (await gateway.get("/v1/topics/t")).json["paused"] is True
        assert await gateway.pop(wait=1) == []
        assert (await gateway.post("/v1/topics/t/resume")).status == 204
        assert len(await gateway.pop(wait=5)) == 1

    run(scenario)


def test_a_purged_topic_is_empty() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.put()
        await gateway.put(delay=5)
        assert (await gateway.post("/v1/topics/t/purge")).json == {"removed": 1}
        assert await gateway.pop(wait=10) == []

    run(scenario)


def test_unrouted_jobs_are_listed_retried_and_dropped() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        assert (await gateway.get("/v1/unrouted")).json == {"total": 0, "jobs": []}
        assert (await gateway.post("/v1/unrouted/retry", {"all": True})).json["retried"] == 0
        assert (await gateway.post("/v1/unrouted/drop", {"ids": ["x"]})).json == {"dropped": 0}

    run(scenario)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/topics/t/buried/kick",
        "/v1/topics/t/buried/drop",
        "/v1/unrouted/retry",
        "/v1/unrouted/drop",
    ],
)
@pytest.mark.parametrize("choice", [{}, {"all": True, "ids": []}, {"all": False}, {"all": 1}])
def test_a_choice_of_parked_jobs_must_be_made(path: str, choice: object) -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        assert (await gateway.post(path, choice)).status == 422

    run(scenario)


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "bodies=maybe", "foo=1"])
def test_a_bad_parameter_is_refused(query: str) -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        answer = await gateway.get(f"/v1/topics/t/buried?{query}")
        assert answer.status == 422
        assert answer.json["errors"][0]["parameter"] == query.partition("=")[0]

    run(scenario)


def test_the_gateway_is_alive_and_ready() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        assert (await gateway.get("/healthz")).json == {"status": "alive"}
        assert (await gateway.get("/readyz")).json == {"status": "ready"}

    run(scenario)


def test_a_path_or_method_that_does_not_exist_is_a_problem() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        assert (await gateway.get("/nope")).status == 404
        assert (await gateway.post("/v1/pop/")).status == 404
        answer = await gateway.get("/v1/pop")
        assert (answer.status, answer.header("allow")) == (405, "POST")
        assert (await gateway.get("/docs")).status == 404

    run(scenario)
