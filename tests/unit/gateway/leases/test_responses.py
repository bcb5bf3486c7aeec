"""Responses to jobs, on any of several gateways."""

import asyncio

import pytest

from rabbitdelay import Job, aio
from rabbitdelay.core.work.responses import Response
from rabbitdelay.engine.peers.peer_group import LEARN_SECONDS
from rabbitdelay.errors import Bury, NoResponse
from rabbitdelay.gateway.gateway import Gateway
from rabbitdelay.gateway.problems import NotFound
from rabbitdelay.gateway.waiting.caller_gone import CallerGone
from tests.support.gateway.stage import GatewayStage, on_stage, put_by


async def response(gateway: Gateway, job: Job, wait: float = 20) -> Response | None:
    return await gateway.response(job.id, wait=wait, caller_gone=CallerGone())


def answer_on(stage: GatewayStage) -> None:
    """Run a worker that doubles numbers, and buries anything else."""
    worker = aio.Worker()

    @worker.handler("double")
    async def double(job: Job) -> int:
        if not isinstance(job.body, int):
            raise Bury("not a number")
        return 2 * job.body

    stage.broker.run(worker)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_response_is_read_on_any_gateway(*, is_elsewhere: bool) -> None:
    async def play(stage: GatewayStage) -> None:
        one, two = await stage.gateway(), await stage.gateway()
        answer_on(stage)
        job = await put_by(one, "double", 21, reply=True)
        for _ in range(2):  # it can be read again
            found = await response(two if is_elsewhere else one, job)
            assert found is not None
            assert found.body == 42

    on_stage(play)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_response_is_waited_for_on_any_gateway(*, is_elsewhere: bool) -> None:
    async def play(stage: GatewayStage) -> None:
        one, two = await stage.gateway(), await stage.gateway()
        job = await put_by(one, "double", 21, reply=True, delay=10)
        asked = two if is_elsewhere else one
        assert await response(asked, job, wait=2) is None
        answer_on(stage)
        found = await response(asked, job, wait=20)
        assert found is not None
        assert found.body == 42

    on_stage(play)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_the_reason_why_none_comes_is_told_on_any_gateway(*, is_elsewhere: bool) -> None:
    async def play(stage: GatewayStage) -> None:
        one, two = await stage.gateway(), await stage.gateway()
        stage.broker._raise_errors = False
        answer_on(stage)
        job = await put_by(one, "double", "two", reply=True)
        with pytest.raises(NoResponse, match="not a number"):
            await response(two if is_elsewhere else one, job)

    on_stage(play)


@pytest.mark.parametrize("gateways", [1, 2, 3])
def test_an_unknown_job_has_no_response_on_any_gateway(gateways: int) -> None:
    async def play(stage: GatewayStage) -> None:
        one, *_ = [await stage.gateway() for _ in range(gateways)]
        job = await put_by(one)
        for longest_seconds in (2 * LEARN_SECONDS, 0.1):  # at first, the others are not known yet
            began = stage.broker.now
            with pytest.raises(NotFound):
                await response(one, job)
            assert (stage.broker.now - began).total_seconds() < longest_seconds

    on_stage(play)


def test_a_gateway_that_stops_has_no_responses() -> None:
    async def play(stage: GatewayStage) -> None:
        one, two = await stage.gateway(), await stage.gateway()
        job = await put_by(one, "double", 21, reply=True)
        waiting = asyncio.create_task(response(two, job))
        await asyncio.sleep(0)
        await one.close()
        with pytest.raises(NotFound):
            await waiting

    on_stage(play)
