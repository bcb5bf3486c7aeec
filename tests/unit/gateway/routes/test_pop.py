"""Popping jobs over HTTP, and settling them by their leases."""

import asyncio

import pytest

from rabbitdelay.gateway import GatewaySettings
from tests.support.gateway.memory_gateway import MemoryGateway, run, until_waiting


def test_a_popped_job_has_all_its_facts() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.put(
            id="x", body={"a": 1}, ttr=20, max_attempts=4, headers={"h": [1, None]}, callback=None
        )
        (job,) = await gateway.pop()
        assert (job["id"], job["topic"], job["body"]) == ("x", "t", {"a": 1})
        assert (job["attempt"], job["max_attempts"], job["ttr"]) == (1, 4, 20.0)
        assert 19 < job["time_left"] <= 20
        assert job["headers"] == {"h": [1, None]}
        assert job["lease"]

    run(scenario)


@pytest.mark.parametrize(
    ("payload", "content_type", "member", "value"),
    [
        (b'{"a":1}', "application/json", "body", {"a": 1}),
        (b'{"a":1}', "application/vnd.x+json; v=1", "body", {"a": 1}),
        (b"{broken", "application/json", "body_base64", "e2Jyb2tlbg=="),
        (b"NaN", "application/json", "body_base64", "TmFO"),
        (b'"\xff"', "application/json", "body_base64", "Iv8i"),
        (b"1 2", "application/json", "body_base64", "MSAy"),
        (b"", "application/json", "body_base64", ""),
        ("hé".encode(), "text/plain; charset=utf-8", "body", "hé"),
        (b"\xff", "text/plain", "body_base64", "/w=="),
        (b"\xff", "image/png", "body_base64", "/w=="),
    ],
)
def test_a_body_comes_in_the_member_that_suits_it(
    payload: bytes, content_type: str, member: str, value: object
) -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.broker.aio_client().put("t", payload, content_type=content_type)
        (job,) = await gateway.pop()
        assert job[member] == value
        assert len({"body", "body_base64"} & job.keys()) == 1

    run(scenario)


def test_a_raw_pop_answers_with_the_body_and_facts_in_headers() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        client = gateway.broker.aio_client()
        await client.put("t", b"\x00\xff", content_type="image/png", id="é\n x")
        raw = {"accept": "application/octet-stream"}
        answer = await gateway.post("/v1/pop", {"topics": "t"}, headers=raw)
        assert (answer.status, answer.body) == (200, b"\x00\xff")
        assert answer.header("content-type") == "image/png"
        assert answer.header("rabbitdelay-id") == "%C3%A9%0A x"
        assert answer.header("rabbitdelay-attempt") == "1"
        lease = answer.header("rabbitdelay-lease")
        assert (await gateway.post("/v1/finish", {"lease": lease})).status == 204
        answer = await gateway.post("/v1/pop", {"topics": "t", "max": 2}, headers=raw)
        assert answer.status == 422

    run(scenario)


def test_a_content_type_that_cannot_be_a_header_is_not_sent_as_one() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.broker.aio_client().put("t", b"x", content_type="a/b\r\nset-cookie: x")
        raw = {"accept": "application/octet-stream"}
        answer = await gateway.post("/v1/pop", {"topics": "t"}, headers=raw)
        assert answer.header("content-type") == "application/octet-stream"
        assert answer.header("set-cookie") is None

    run(scenario)


def test_several_jobs_of_several_topics_are_popped_at_once() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        for number in range(5):
            await gateway.put(topic=f"t{number % 2}", body=number)
        await gateway.broker.aio_advance(1)
        jobs = await gateway.pop(["t0", "t1"], max=4, wait=1)
        assert len({job["lease"] for job in jobs}) == 4
        assert len(await gateway.pop(["t0", "t1"], max=4, wait=1)) == 1

    run(scenario)


def test_a_long_poll_ends_with_the_job_that_comes_due() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.put(body=7, delay=20)
        assert await gateway.pop(wait=10) == []
        assert [job["body"] for job in await gateway.pop(wait="15s")] == [7]

    run(scenario)


def test_the_wait_of_a_pop_is_limited() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.put(delay=60)
        assert await gateway.pop(wait=3600) == []

    run(scenario, GatewaySettings(max_wait=5))


@pytest.mark.parametrize(
    "request_",
    [
        {"topics": []},
        {"topics": "a b"},
        {"topics": "t", "max": 0},
        {"topics": "t", "max": 100_000},
        {"topics": "t", "max": "1"},
        {"topics": "t", "wait": -1},
        {"topics": "t", "wait": None},
        {"topic": "t"},
        {"topics": {"a": 1}},
    ],
)
def test_a_bad_pop_is_refused(request_: object) -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        assert (await gateway.post("/v1/pop", request_)).status == 422

    run(scenario)


def test_a_finished_job_does_not_come_again() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.put(ttr=5)
        (job,) = await gateway.pop()
        assert (await gateway.post("/v1/finish", {"lease": job["lease"]})).status == 204
        assert await gateway.pop(wait=20) == []
        again = await gateway.post("/v1/finish", {"lease": job["lease"]})
        assert (again.status, again.json["type"]) == (409, "/problems/lease-lost")

    run(scenario)


def test_several_jobs_are_finished_at_once_and_lost_leases_are_named() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        for _ in range(3):
            await gateway.put()
        leases = [job["lease"] for job in await gateway.pop(max=3)]
        assert (await gateway.post("/v1/finish", {"leases": leases[:2]})).status == 204
        answer = await gateway.post("/v1/finish", {"leases": leases})
        assert answer.status == 409
        assert sorted(answer.json["lost"]) == sorted(leases[:2])
        assert answer.json["finished"] == 1

    run(scenario)


def test_a_job_whose_ttr_is_over_comes_again_and_its_lease_is_lost() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.put(ttr=2)
        (job,) = await gateway.pop()
        (again,) = await gateway.pop(wait=20)
        assert (again["id"], again["attempt"]) == (job["id"], 2)
        assert (await gateway.post("/v1/finish", {"lease": job["lease"]})).status == 409
        assert (await gateway.post("/v1/finish", {"lease": again["lease"]})).status == 204

    run(scenario)


def test_a_released_job_comes_again_after_its_delay() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.put()
        (job,) = await gateway.pop()
        assert (await gateway.post("/v1/release", {"lease": job["lease"], "delay": "10s"})).status
        assert await gateway.pop(wait=5) == []
        (again,) = await gateway.pop(wait=10)
        assert again["attempt"] == 2

    run(scenario)


def test_a_touched_job_has_its_whole_ttr_again() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.put(ttr=10)
        (job,) = await gateway.pop()
        await gateway.broker.aio_advance(8)
        answer = await gateway.post("/v1/touch", {"lease": job["lease"]})
        assert answer.status == 200
        assert 9 < answer.json["time_left"] <= 10
        await gateway.broker.aio_advance(8)
        assert (await gateway.post("/v1/finish", {"lease": answer.json["lease"]})).status == 204

    run(scenario)


def test_a_buried_job_is_listed_kicked_and_dropped() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.put(id="x", body={"a": 1})
        (job,) = await gateway.pop()
        bury = {"lease": job["lease"], "reason": "no such customer"}
        assert (await gateway.post("/v1/bury", bury)).status == 204
        listed = (await gateway.get("/v1/topics/t/buried?bodies=true")).json
        assert listed["total"] == 1
        assert listed["jobs"][0]["reason"] == "no such customer"
        assert listed["jobs"][0]["body"] == {"a": 1}
        kicked = await gateway.post("/v1/topics/t/buried/kick", {"ids": ["y"]})
        assert kicked.json["kicked"] == 0
        kicked = await gateway.post("/v1/topics/t/buried/kick", {"ids": ["x"]})
        assert kicked.json["kicked"] == 1
        (job,) = await gateway.pop(wait=5)
        assert job["attempt"] == 1
        await gateway.post("/v1/bury", {"lease": job["lease"]})
        dropped = await gateway.post("/v1/topics/t/buried/drop", {"all": True})
        assert dropped.json == {"dropped": 1}

    run(scenario)


@pytest.mark.parametrize("verb", ["finish", "release", "touch", "bury"])
def test_a_lease_that_is_not_one_is_refused(verb: str) -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        assert (await gateway.post(f"/v1/{verb}", {"lease": "nope"})).status == 422
        assert (await gateway.post(f"/v1/{verb}", {})).status == 422
        assert (await gateway.post(f"/v1/{verb}", {"lease": 5})).status == 422

    run(scenario)


def test_long_polls_end_without_a_job_when_the_gateway_stops() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        polling = asyncio.create_task(gateway.post("/v1/pop", {"topics": "never", "wait": 50}))
        await until_waiting(gateway.gateway)
        gateway.gateway.stop_handing_out()
        assert (await polling).status == 204
        answer = await gateway.post("/v1/pop", {"topics": "t"})
        assert (answer.status, answer.json["type"]) == (503, "/problems/shutting-down")
        assert (await gateway.get("/readyz")).status == 503
        assert (await gateway.get("/healthz")).status == 200
        await gateway.put()  # a put hands out nothing, and is safe with the broker

    run(scenario)


def test_leases_can_be_settled_while_the_gateway_stops() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.put()
        (job,) = await gateway.pop()
        gateway.gateway.stop_handing_out()
        assert (await gateway.post("/v1/finish", {"lease": job["lease"]})).status == 204

    run(scenario)
