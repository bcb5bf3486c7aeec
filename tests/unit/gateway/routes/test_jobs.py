"""Putting, replacing and deleting jobs over HTTP."""

import json
from base64 import b64encode

import pytest

from rabbitdelay.gateway import GatewaySettings
from tests.support.gateway.memory_gateway import MemoryGateway, run

RAW = b'{"n": 12345678901234567890, "x":1.0, "a":1,  "\\u00e9": [1e400]}'
"""A JSON value that changes when it is parsed and written again."""


def test_a_body_is_stored_and_returned_byte_for_byte() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        content = b'{"topic": "t", "body" :  ' + RAW + b'  , "ttr": 5}'
        put = await gateway.post("/v1/jobs", content=content)
        assert put.status == 201
        assert [job.payload for job in gateway.broker.jobs("t")] == [RAW]
        popped = await gateway.post("/v1/pop", {"topics": "t"})
        assert b'"body":' + RAW in popped.body

    run(scenario)


def test_the_answer_to_a_put_has_the_id_the_due_time_and_the_path() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        answer = await gateway.post("/v1/jobs", {"topic": "t", "id": "a/b é", "delay": "1h30m"})
        assert answer.status == 201
        assert answer.header("location") == "/v1/jobs/a%2Fb%20%C3%A9"
        assert answer.json["id"] == "a/b é"
        (job,) = gateway.broker.jobs("t")
        assert (job.due_ms - job.put_ms) == 5_400_000

    run(scenario)


def test_every_option_reaches_the_job() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.put(
            at="2031-01-01T00:00:00+01:00",
            ttr="2m",
            id="x",
            max_attempts=3,
            callback="https://example.com/",
            backoff="1s",
            backoff_max=60,
            headers={"trace": "1"},
            body="hello",
            content_type="text/plain",
        )
        (job,) = gateway.broker.jobs("t")
        assert job.due.isoformat() == "2030-12-31T23:00:00+00:00"
        assert (job.ttr_ms, job.id, job.max_attempts) == (120_000, "x", 3)
        assert (job.callback, job.backoff_ms) == ("https://example.com/", 1000)
        assert (job.backoff_max_ms, job.headers) == (60_000, {"trace": "1"})
        assert (job.payload, job.content_type) == (b"hello", "text/plain")

    run(scenario)


def test_a_body_that_is_not_json_travels_raw_with_options_in_the_url() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        answer = await gateway.post(
            "/v1/jobs?topic=t&delay=1s&max_attempts=2&id=x",
            content=b"\x00\xff",
            headers={"content-type": "image/png"},
        )
        assert answer.status == 201
        (job,) = gateway.broker.jobs("t")
        assert (job.payload, job.content_type, job.max_attempts) == (b"\x00\xff", "image/png", 2)

    run(scenario)


def test_a_body_in_base64_is_decoded() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.put(body_base64=b64encode(b"\xff").decode(), content_type="image/png")
        (job,) = gateway.broker.jobs("t")
        assert (job.payload, job.content_type) == (b"\xff", "image/png")

    run(scenario)


@pytest.mark.parametrize(
    ("content", "status", "detail"),
    [
        (b"{", 400, "not valid JSON"),
        (b"[1]", 400, "must begin with {"),
        (b'{"topic":"t"} x', 400, "text follows"),
        (b'{"topic":"t","topic":"u"}', 400, "'topic' is given twice"),
        (b'{"topic":"t","body":NaN}', 400, "NaN"),
        (b'{"topic":"t","body":[-Infinity]}', 400, "-Infinity"),
        (b'{"topic":"\xff"}', 400, "not UTF-8"),
        (b'{"topic":"t","body":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "too deeply"),
        (b'{"topic":"t","headers":{"a":1,"a":2}}', 400, "'a' is given twice"),
        (b'{"topic":"t","ttr":' + b"9" * 5000 + b"}", 400, "JSON"),
        (b'{"topic":"t","dellay":3}', 422, "dellay: unknown member; did you mean 'delay'?"),
        (b"{}", 422, "topic: Field required"),
        (b'{"topic":7}', 422, "topic: "),
        (b'{"topic":"a/b"}', 422, "topic 'a/b' may only contain"),
        (b'{"topic":"t","delay":"soon"}', 422, "delay: invalid duration 'soon'"),
        (b'{"topic":"t","delay":1,"at":"2031-01-01T00:00:00Z"}', 422, "either `delay` or `at`"),
        (b'{"topic":"t","at":1}', 422, "at: a time must be text"),
        (b'{"topic":"t","at":"2031-01-01T00:00:00"}', 422, "at: "),
        (b'{"topic":"t","max_attempts":"3"}', 422, "max_attempts: "),
        (b'{"topic":"t","id":"\\ud800"}', 422, "not valid Unicode"),
        (b'{"topic":"t","body":1,"body_base64":"AA=="}', 422, "either body or body_base64"),
        (b'{"topic":"t","body_base64":"?"}', 422, "body_base64: "),
        (b'{"topic":"t","body":1,"content_type":"image/png"}', 422, "body_base64"),
        (b'{"topic":"t","body":"\\ud800","content_type":"text/plain"}', 422, "surrogate"),
    ],
)
def test_a_bad_request_is_refused_with_its_reason(content: bytes, status: int, detail: str) -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        answer = await gateway.post("/v1/jobs", content=content)
        assert answer.status == status, answer.body
        assert detail in answer.json["detail"]
        assert gateway.broker.jobs("t") == []

    run(scenario)


def test_a_content_type_other_than_json_needs_a_topic_in_the_url() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        form = {"content-type": "application/x-www-form-urlencoded"}
        answer = await gateway.post("/v1/jobs", content=b'{"topic":"t"}', headers=form)
        assert answer.status == 415
        answer = await gateway.post("/v1/jobs?topik=t", content=b"x", headers=form)
        assert answer.status == 422
        assert answer.json["detail"] == "topik: unknown parameter; did you mean 'topic'?"
        answer = await gateway.post("/v1/jobs?topic=t&topic=u", content=b"x", headers=form)
        assert answer.json["detail"] == "topic: given twice"

    run(scenario)


def test_a_body_above_the_limit_of_the_namespace_is_refused() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        answer = await gateway.post("/v1/jobs", {"topic": "t", "body": "x" * 100})
        assert answer.status == 422
        answer = await gateway.post("/v1/jobs", {"topic": "t", "body": "x" * 300})
        assert answer.status == 413

    run(scenario, GatewaySettings(max_body_bytes=50, max_request_bytes=200))


def test_many_jobs_are_put_in_one_request_and_answered_in_order() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        jobs = [{"topic": f"t{n % 2}", "id": f"id{n}", "body": n} for n in range(50)]
        answer = await gateway.post("/v1/jobs/batch", {"jobs": jobs})
        assert answer.status == 201
        assert [job["id"] for job in answer.json["jobs"]] == [f"id{n}" for n in range(50)]
        assert {job.id: job.payload for job in gateway.broker.jobs("t1")} == {
            f"id{n}": str(n).encode() for n in range(1, 50, 2)
        }

    run(scenario)


def test_lines_of_json_are_put_and_empty_lines_are_skipped() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        content = b'{"topic":"t","body":' + RAW + b'}\r\n\n{"topic":"t","body":2}\n'
        answer = await gateway.post(
            "/v1/jobs/batch", content=content, headers={"content-type": "application/x-ndjson"}
        )
        assert answer.status == 201
        assert {job.payload for job in gateway.broker.jobs("t")} == {RAW, b"2"}

    run(scenario)


@pytest.mark.parametrize(
    ("content", "kind", "detail"),
    [
        (b'{"topic":"t"}\n{"topik":"t"}', "application/x-ndjson", "line 2: "),
        (b'{"jobs":[{"topic":"t"},{"topic":"t","dely":1}]}', "application/json", "jobs 1: dely: "),
        (b'{"jobs":{}}', "application/json", "jobs: must be an array"),
        (b"{}", "application/json", "jobs: Field required"),
        (b'{"job":[]}', "application/json", "did you mean 'jobs'"),
    ],
)
def test_nothing_of_a_batch_is_put_if_a_job_cannot_be_read(
    content: bytes, kind: str, detail: str
) -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        answer = await gateway.post(
            "/v1/jobs/batch", content=content, headers={"content-type": kind}
        )
        assert answer.status == 422
        assert detail in str(answer.json)
        assert gateway.broker.jobs("t") == []

    run(scenario)


def test_a_batch_that_fails_says_which_positions_are_confirmed() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        jobs = [{"topic": "t", "id": "a"}, {"topic": "t", "id": "b", "ttr": 0.5}, {"topic": "t"}]
        answer = await gateway.post("/v1/jobs/batch", {"jobs": jobs})
        assert answer.status == 422
        assert answer.json["type"] == "/problems/put-many-failed"
        assert (answer.json["confirmed"], answer.json["unconfirmed"]) == (1, [1])
        assert answer.json["jobs"] == [{"position": 0, "id": "a"}]
        assert [job.id for job in gateway.broker.jobs("t")] == ["a"]

    run(scenario)


def test_a_job_replaces_those_with_its_id() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.put(id="x/y", body=1)
        answer = await gateway.ask("PUT", "/v1/jobs/x%2Fy", {"topic": "t", "body": 2})
        assert answer.status == 200
        assert answer.json["id"] == "x/y"
        assert [job["body"] for job in await gateway.pop(max=10)] == [2]
        answer = await gateway.ask("PUT", "/v1/jobs/x", {"topic": "t", "id": "z"})
        assert answer.status == 422

    run(scenario)


def test_jobs_are_deleted_by_id() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        for name in ("a/b", "c", "d", "é"):
            await gateway.put(id=name)
        assert (await gateway.ask("DELETE", "/v1/jobs/a%2Fb")).status == 204
        assert (await gateway.ask("DELETE", "/v1/jobs/%C3%A9")).status == 204
        assert (await gateway.ask("DELETE", "/v1/jobs/unknown")).status == 204
        answer = await gateway.post("/v1/jobs/delete", {"ids": ["c", "nope"]})
        assert answer.json == {"deleted": 2}
        assert [job["id"] for job in await gateway.pop(max=10)] == ["d"]

    run(scenario)


@pytest.mark.parametrize("path", ["/v1/jobs/%FF", "/v1/jobs/a%00b"])
def test_a_path_whose_id_would_change_is_refused(path: str) -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        assert (await gateway.ask("DELETE", path)).status == 400

    run(scenario)


def test_the_response_to_a_job_can_be_read_again() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        put = await gateway.put(reply=True)
        path = f"/v1/jobs/{put}/response"
        assert (await gateway.get(path)).status == 204
        client = gateway.gateway.client
        queue = await client.reply_queue()
        (job,) = gateway.broker.jobs("t")
        assert job.reply_to == queue
        await _respond(gateway)
        for _ in range(2):
            answer = await gateway.get(f"{path}?wait=20")
            assert answer.status == 200
            assert answer.json["body"] == {"done": True}

    run(scenario)


def test_the_response_to_a_job_that_expects_none_is_not_found() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        put = await gateway.put()
        assert (await gateway.get(f"/v1/jobs/{put}/response")).status == 404
        assert (await gateway.get(f"/v1/jobs/{put}/response?wait=x")).status == 422

    run(scenario)


async def _respond(gateway: MemoryGateway) -> None:
    """Let a worker handle the jobs of topic `t`."""
    from rabbitdelay import aio  # noqa: PLC0415

    worker = aio.Worker("amqp://nowhere.invalid")

    @worker.handler("t")
    async def handle(body: object) -> dict[str, bool]:
        return {"done": body is None}

    gateway.broker.run(worker)
    await gateway.broker.aio_run_until_idle()


def test_puts_while_the_broker_is_blocked_are_refused_once_it_is_known() -> None:
    """RabbitMQ says that it blocks publishers when one of them publishes."""

    async def scenario(gateway: MemoryGateway) -> None:
        with gateway.broker.block("low on memory"):
            first = await gateway.post("/v1/jobs", {"topic": "t"})
            assert (first.status, first.json["sent"]) == (202, True)
            answer = await gateway.post("/v1/jobs", {"topic": "t"})
            assert answer.status == 503
            assert answer.json["type"] == "/problems/broker-blocked"
            assert answer.json["sent"] is False
            assert int(answer.header("retry-after") or 0) > 0
        await gateway.broker.aio_run_until_idle()
        assert (await gateway.post("/v1/jobs", {"topic": "t"})).status == 201

    run(scenario)


def test_problems_are_json_with_characters_of_any_language() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        answer = await gateway.post("/v1/jobs", {"topic": "é\ud800"})
        assert answer.status == 422
        assert json.loads(answer.body)["status"] == 422

    run(scenario)
