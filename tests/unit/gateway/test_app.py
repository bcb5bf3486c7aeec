"""GatewayApp: served by itself, mounted in another application, and missing its packages."""

import asyncio
import subprocess
import sys

import pytest
from fastapi import FastAPI

from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.gateway import GatewayApp, GatewaySettings
from rabbitdelay.gateway.http.asgi import Message
from rabbitdelay.gateway.problems import ShuttingDown
from rabbitdelay.testing import MemoryBroker
from tests.support.asgi import ask, scope_of
from tests.support.gateway.memory_gateway import until_ready

JSON = {"content-type": "application/json"}


def test_a_mounted_gateway_serves_below_its_path() -> None:
    async def scenario() -> None:
        async with MemoryBroker() as broker:
            gateway = GatewayApp(transport=broker, stabilise_seconds=0)
            app = FastAPI(lifespan=gateway.lifespan)
            app.mount("/queue", gateway)
            async with app.router.lifespan_context(app):
                await until_ready(gateway.gateway)
                put = b'{"topic":"t","id":"a/b"}'
                answer = await ask(app, scope_of("POST", "/queue/v1/jobs", JSON), [put])
                assert (answer.status, answer.header("location")) == (
                    201,
                    "/queue/v1/jobs/a%2Fb",
                )
                answer = await ask(app, scope_of("DELETE", "/queue/v1/jobs/a%2Fb"))
                assert answer.status == 204
                answer = await ask(app, scope_of("POST", "/v1/jobs", JSON), [put])
                assert answer.status == 404

    asyncio.run(scenario())


def test_a_gateway_whose_lifespan_was_forgotten_says_so() -> None:
    async def scenario() -> None:
        async with MemoryBroker() as broker:
            gateway = GatewayApp(transport=broker)
            with pytest.raises(ShuttingDown, match="lifespan"):
                _ = gateway.gateway
            answer = await ask(gateway, scope_of("GET", "/readyz"))
            assert answer.status == 503
            assert "lifespan" in answer.json["detail"]

    asyncio.run(scenario())


def test_a_gateway_can_run_again_after_its_end() -> None:
    async def scenario() -> None:
        async with MemoryBroker() as broker:
            app = GatewayApp(transport=broker, stabilise_seconds=0)
            for _ in range(2):
                async with app.running() as gateway:
                    await until_ready(gateway)
                    put = b'{"topic":"t"}'
                    answer = await ask(app, scope_of("POST", "/v1/jobs", JSON), [put])
                    assert answer.status == 201

    asyncio.run(scenario())


def test_a_server_starts_and_ends_the_gateway() -> None:
    async def scenario() -> None:
        async with MemoryBroker() as broker:
            app = GatewayApp(transport=broker)
            running, sent = asyncio.Event(), list[str]()
            received: list[Message] = [{"type": "lifespan.startup"}]

            async def receive() -> Message:
                if received:
                    return received.pop()
                await running.wait()
                return {"type": "lifespan.shutdown"}

            async def send(message: Message) -> None:
                sent.append(message["type"])

            serving = asyncio.create_task(app({"type": "lifespan"}, receive, send))
            while not sent:  # noqa: ASYNC110 - every step of the loop may be the one
                await asyncio.sleep(0)
            assert app.stats() is not None
            running.set()
            await serving
            assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
            assert app.stats() is None

    asyncio.run(scenario())


def test_a_bad_url_is_refused_at_once() -> None:
    with pytest.raises(InvalidConfiguration):
        GatewayApp("http://localhost")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"max_wait": -1}, "max_wait"),
        ({"max_body_bytes": 0}, "max_body_bytes"),
        ({"max_body_bytes": 100, "max_request_bytes": 99}, "max_request_bytes"),
    ],
)
def test_a_setting_out_of_range_is_named(options: dict[str, int], name: str) -> None:
    with pytest.raises(InvalidConfiguration, match=name):
        GatewaySettings(**options)  # type: ignore[arg-type]


def test_two_gateways_have_different_names() -> None:
    assert GatewaySettings().instance != GatewaySettings().instance


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_without_the_extra_the_error_has_the_command_that_installs_it(package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None\nimport rabbitdelay.gateway"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "InvalidConfiguration: the HTTP gateway requires" in done.stderr
    assert "pip install 'rabbitdelay[http]'" in done.stderr


def test_only_the_gateway_loads_fastapi() -> None:
    code = (
        "import sys, rabbitdelay, rabbitdelay.aio, rabbitdelay.testing, rabbitdelay.cli\n"
        "print(*sorted({'fastapi', 'starlette', 'uvicorn', 'h11'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
