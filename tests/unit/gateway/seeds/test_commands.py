"""The protocol with one endpoint: what its clients send, and what they expect."""

import pytest

from tests.support.gateway.memory_gateway import MemoryGateway, run

NOTHING = {"success": True, "error": "", "id": "", "value": ""}


async def command(gateway: MemoryGateway, content: str, kind: str = "") -> dict[str, object]:
    headers = {"content-type": kind} if kind else {}
    answer = await gateway.post("/", content=content.encode(), headers=headers)
    assert answer.status == 200
    return dict(answer.json)


def test_a_job_is_added_popped_and_finished() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        add = r'{"command":"add","topic":"t","id":"x","delay":30,"TTR":60,"body":"{\"a\": 1.0}"}'
        assert await command(gateway, add) == NOTHING | {"id": "x"}
        (job,) = gateway.broker.jobs("t")
        assert (job.ttr_ms, job.due_ms - job.put_ms) == (60_000, 30_000)
        assert (job.payload, job.content_type) == (b'{"a": 1.0}', "application/json")
        assert await command(gateway, '{"command":"pop","topic":"t"}') == NOTHING
        popped = await command(gateway, '{"command":"pop","topic":"t","wait":40}')
        assert popped == NOTHING | {"id": "x", "value": '{"a": 1.0}'}
        assert await command(gateway, '{"command":"finish","id":"x"}') == NOTHING | {"id": "x"}
        assert gateway.gateway.stats().leases == 0
        assert await command(gateway, '{"command":"pop","topic":"t","wait":90}') == NOTHING

    run(scenario)


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "x"])
def test_the_content_type_is_not_checked(kind: str) -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        answer = await command(gateway, '{"command":"add","topic":"t","id":"x","body":"b"}', kind)
        assert answer["success"] is True

    run(scenario)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ('"hello"', "hello"),
        ('{"n": 12345678901234567890}', '{"n": 12345678901234567890}'),
        ("1.0", "1.0"),
        (r'"\u00e9"', "é"),
        ('""', ""),
    ],
)
def test_a_body_comes_back_as_text(body: str, value: str) -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await command(gateway, f'{{"command":"add","topic":"t","id":"x","body":{body}}}')
        popped = await command(gateway, '{"command":"pop","topic":"t","wait":1}')
        assert popped["value"] == value

    run(scenario)


def test_a_body_that_is_not_text_comes_in_base64() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        await gateway.broker.aio_client().put("t", b"\xff", id="x")
        popped = await command(gateway, '{"command":"pop","topic":"t","wait":1}')
        assert (popped["value"], popped["encoding"]) == ("/w==", "base64")

    run(scenario)


def test_topics_are_served_in_order_of_priority() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        for topic in ("low", "high", "low", "high"):
            await gateway.put(topic=topic, body=topic)
        await gateway.broker.aio_advance(1)
        popped = [
            await command(gateway, '{"command":"pop","topic":" high , low ,"}') for _ in range(4)
        ]
        assert [one["value"] for one in popped] == ['"high"', '"high"', '"low"', '"low"']

    run(scenario)


def test_a_job_is_deleted_in_any_state() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        for delay in (0, 10):
            await command(
                gateway, f'{{"command":"add","topic":"t","id":"d{delay}","delay":{delay}}}'
            )
            answer = await command(gateway, f'{{"command":"delete","id":"d{delay}"}}')
            assert answer == NOTHING | {"id": f"d{delay}"}
        assert await command(gateway, '{"command":"pop","topic":"t","wait":30}') == NOTHING
        assert await command(gateway, '{"command":"delete","id":"never"}') == NOTHING | {
            "id": "never"
        }

    run(scenario)


def test_a_job_that_was_popped_is_finished_by_its_id_wherever_it_is() -> None:
    """Once it is not held any more, it is deleted: the client says that it is done."""

    async def scenario(gateway: MemoryGateway) -> None:
        await command(gateway, '{"command":"add","topic":"t","id":"x","ttr":2}')
        await command(gateway, '{"command":"pop","topic":"t"}')
        await gateway.broker.aio_advance(5)
        assert (await command(gateway, '{"command":"finish","id":"x"}'))["success"] is True
        assert await command(gateway, '{"command":"pop","topic":"t","wait":30}') == NOTHING

    run(scenario)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", "not valid JSON"),
        ("{}", "command is empty"),
        ('{"command":"drop"}', "unknown command 'drop'"),
        ('{"command":"add","id":"x"}', "topic is empty"),
        ('{"command":"add","topic":" "}', "topic is empty"),
        ('{"command":"add","topic":"t","delay":"x"}', "invalid delay"),
        ('{"command":"add","topic":"t","ttr":0.1}', "ttr must be"),
        ('{"command":"add","topic":"a/b"}', "may only contain"),
        ('{"command":"add","topic":"t","callback":"ftp://x"}', "callback must be"),
        (r'{"command":"add","topic":"t","body":"\ud800"}', "surrogate"),
        ('{"command":"pop"}', "topic is empty"),
        ('{"command":"pop","topic":"a b"}', "may only contain"),
        ('{"command":"finish"}', "id is empty"),
        ('{"command":"delete","id":[]}', "id is empty"),
    ],
)
def test_a_failure_says_why(content: str, error: str) -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        answer = await command(gateway, content)
        assert answer["success"] is False
        assert error in str(answer["error"])

    run(scenario)
