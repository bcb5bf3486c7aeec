"""Settling jobs by their leases on any of several gateways."""

from contextlib import suppress
from datetime import timedelta

import pytest

from rabbitdelay.aio import awaiting
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.publish.pending import Pending, Target
from rabbitdelay.engine.futures import Future
from rabbitdelay.errors import BrokerBlocked, InvalidJob, LeaseLost
from rabbitdelay.gateway.gateway import Gateway
from rabbitdelay.gateway.leases import lease_text
from rabbitdelay.gateway.leases.held_jobs import HeldJob
from rabbitdelay.gateway.leases.lease_text import NotALease
from tests.support.gateway.stage import GatewayStage, on_stage, pop, pop_any, put_by

LATER_SECONDS = 70.0
"""Longer than the ttr of a job. Each gateway says once a second that it is alive."""
VERBS = ["finish", "release", "touch", "bury"]


async def settle(gateway: Gateway, verb: str, lease: str) -> None:
    match verb:
        case "finish":
            await gateway.finish(lease)
        case "release":
            await gateway.release(lease, 0)
        case "touch":
            await gateway.touch(lease)
        case "bury":
            await gateway.bury(lease, "no good")


async def held_by_the_first(
    stage: GatewayStage, **options: object
) -> tuple[Gateway, Gateway, HeldJob]:
    """Return two gateways, and a job that the first one holds."""
    await stage.put(**options)  # type: ignore[arg-type]
    one, two = await stage.gateway(), await stage.gateway()
    return one, two, await pop(one)


async def comes_back(stage: GatewayStage, gateway: Gateway, attempt: int) -> None:
    """Check that the job is ready again, and finish it."""
    await stage.pass_time(LATER_SECONDS)
    again = await pop(gateway)
    assert again.job.attempt == attempt
    await gateway.finish(again.lease)


async def is_gone(stage: GatewayStage, gateway: Gateway) -> None:
    """Check that no job is left in the topic, now or later."""
    for _ in range(2):
        assert await pop_any(gateway) == []
        await stage.pass_time(LATER_SECONDS)
    await stage.broker.aio_run_until_idle()
    assert stage.broker.jobs("t") == []


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_job_is_finished_on_any_gateway(*, is_elsewhere: bool) -> None:
    async def play(stage: GatewayStage) -> None:
        one, two, held = await held_by_the_first(stage)
        await (two if is_elsewhere else one).finish(held.lease)
        assert len(one.held) == 0
        await is_gone(stage, two)

    on_stage(play)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_job_is_released_on_any_gateway(*, is_elsewhere: bool) -> None:
    async def play(stage: GatewayStage) -> None:
        one, two, held = await held_by_the_first(stage)
        await (two if is_elsewhere else one).release(held.lease, timedelta(minutes=1))
        assert len(one.held) == 0
        await stage.pass_time(59)
        assert await pop_any(two) == []
        await comes_back(stage, two, attempt=2)

    on_stage(play)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_job_is_buried_on_any_gateway(*, is_elsewhere: bool) -> None:
    async def play(stage: GatewayStage) -> None:
        one, two, held = await held_by_the_first(stage)
        await (two if is_elsewhere else one).bury(held.lease, "wrong address")
        assert len(one.held) == 0
        (buried,) = stage.broker.buried("t")
        assert buried.reason == "wrong address"

    on_stage(play)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_the_ttr_restarts_on_any_gateway(*, is_elsewhere: bool) -> None:
    async def play(stage: GatewayStage) -> None:
        one, two, held = await held_by_the_first(stage, ttr=60)
        asked = two if is_elsewhere else one
        await stage.pass_time(50)
        touched = await asked.touch(held.lease)
        assert 59 < touched.time_left <= 60
        await stage.pass_time(50)
        again = await asked.touch(held.lease)
        await stage.pass_time(50)
        await asked.finish(again.lease)
        await is_gone(stage, two)

    on_stage(play)


def test_a_renewed_lease_counts_when_its_gateway_is_gone() -> None:
    async def play(stage: GatewayStage) -> None:
        one, two, held = await held_by_the_first(stage, ttr=60)
        await stage.pass_time(50)
        touched = await two.touch(held.lease)
        await stage.pass_time(20)
        await stage.disconnect(one)
        with pytest.raises(LeaseLost):
            await two.finish(held.lease)
        await two.finish(touched.lease)
        await is_gone(stage, two)

    on_stage(play)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_job_that_was_settled_cannot_be_settled_again(verb: str, *, is_elsewhere: bool) -> None:
    async def play(stage: GatewayStage) -> None:
        one, two, held = await held_by_the_first(stage)
        await one.finish(held.lease)
        with pytest.raises(LeaseLost, match="already settled"):
            await settle(two if is_elsewhere else one, verb, held.lease)

    on_stage(play)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_job_whose_ttr_has_passed_cannot_be_settled(verb: str, *, is_elsewhere: bool) -> None:
    async def play(stage: GatewayStage) -> None:
        one, two, held = await held_by_the_first(stage, ttr=60)
        await stage.pass_time(61)
        with pytest.raises(LeaseLost, match="ttr had passed"):
            await settle(two if is_elsewhere else one, verb, held.lease)
        await comes_back(stage, two, attempt=2)

    on_stage(play)


# The gateway that held the job is gone


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_finish_is_durable_although_its_gateway_is_gone(*, is_elsewhere: bool) -> None:
    """The job went back to its queue, unchanged, and must not be handed out again."""

    async def play(stage: GatewayStage) -> None:
        one, two, held = await held_by_the_first(stage)
        await stage.disconnect(one)
        await (two if is_elsewhere else one).finish(held.lease)
        await is_gone(stage, two)

    on_stage(play)


def test_a_finish_is_durable_although_another_client_has_the_job_by_now() -> None:
    async def play(stage: GatewayStage) -> None:
        one, two, held = await held_by_the_first(stage)
        await stage.disconnect(one)
        again = await pop(two)
        await two.finish(held.lease)
        await two.release(again.lease, 0)
        await is_gone(stage, two)

    on_stage(play)


@pytest.mark.parametrize("verb", ["release", "touch", "bury"])
@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_nothing_but_a_finish_succeeds_when_its_gateway_is_gone(
    verb: str, *, is_elsewhere: bool
) -> None:
    async def play(stage: GatewayStage) -> None:
        one, two, held = await held_by_the_first(stage)
        await stage.disconnect(one)
        with pytest.raises(LeaseLost):
            await settle(two if is_elsewhere else one, verb, held.lease)
        await comes_back(stage, two, attempt=1)

    on_stage(play)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_finish_after_the_deadline_fails_although_its_gateway_is_gone(
    *, is_elsewhere: bool
) -> None:
    async def play(stage: GatewayStage) -> None:
        one, two, held = await held_by_the_first(stage, ttr=60)
        await stage.disconnect(one)
        await stage.pass_time(60)
        with pytest.raises(LeaseLost, match="ttr had passed"):
            await (two if is_elsewhere else one).finish(held.lease)
        await comes_back(stage, two, attempt=1)

    on_stage(play)


def test_a_finish_is_durable_although_its_gateway_does_not_answer() -> None:
    async def play(stage: GatewayStage) -> None:
        one, two, held = await held_by_the_first(stage, ttr=60)
        await stage.silence(one)
        began = stage.broker.now
        await two.finish(held.lease)
        assert timedelta(seconds=0.9) < stage.broker.now - began < timedelta(seconds=1.5)
        await is_gone(stage, two)

    on_stage(play)


@pytest.mark.parametrize("verb", ["release", "touch", "bury"])
def test_nothing_but_a_finish_succeeds_when_its_gateway_does_not_answer(verb: str) -> None:
    async def play(stage: GatewayStage) -> None:
        one, two, held = await held_by_the_first(stage, ttr=60)
        await stage.silence(one)
        with pytest.raises(LeaseLost, match="does not answer"):
            await settle(two, verb, held.lease)
        await comes_back(stage, two, attempt=2)

    on_stage(play)


def test_a_job_of_another_program_cannot_be_finished_when_its_gateway_is_gone() -> None:
    """Without a token, a delete would delete other jobs with its id, too."""

    async def play(stage: GatewayStage) -> None:
        await stage.put()
        one, two = await stage.gateway(), await stage.gateway()
        await one.finish((await pop(one)).lease)
        await publish_foreign(one)
        held = await pop(one, wait=10)
        assert held.job.token == ""
        await stage.disconnect(one)
        with pytest.raises(LeaseLost, match="another program"):
            await two.finish(held.lease)
        again = await pop(one, wait=10)
        await two.finish(again.lease)
        await is_gone(stage, two)

    on_stage(play)


def test_a_finish_that_cannot_be_recorded_is_not_a_success() -> None:
    async def play(stage: GatewayStage) -> None:
        one, two, held = await held_by_the_first(stage, ttr=3_600)
        await stage.disconnect(one)
        with stage.broker.block():
            with suppress(BrokerBlocked):
                await put_by(two)
            with pytest.raises(BrokerBlocked):
                await two.finish(held.lease)
        await stage.pass_time(5)
        await two.finish(held.lease)

    on_stage(play)


# Leases that are not in order


@pytest.mark.parametrize("changed", [{"topic": "other"}, {"id": "other"}, {"token": "0" * 16}])
@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_lease_with_a_changed_field_settles_nothing(
    changed: dict[str, str], *, is_elsewhere: bool
) -> None:
    """The right to consume is checked for the topic that the lease names."""

    async def play(stage: GatewayStage) -> None:
        one, two, held = await held_by_the_first(stage)
        fields = {name: getattr(lease_text.decode(held.lease), name) for name in _FIELDS}
        forged = lease_text.LeaseText(**fields | changed).encode()
        for verb in VERBS:
            with pytest.raises(LeaseLost):
                await settle(two if is_elsewhere else one, verb, forged)
        await two.finish(held.lease)
        await is_gone(stage, two)

    on_stage(play)


_FIELDS = lease_text.LeaseText.__slots__


@pytest.mark.parametrize("verb", VERBS)
def test_a_text_that_is_not_a_lease_is_refused(verb: str) -> None:
    async def play(stage: GatewayStage) -> None:
        gateway = await stage.gateway()
        with pytest.raises(NotALease):
            await settle(gateway, verb, "nonsense")

    on_stage(play)


def test_an_invalid_delay_leaves_the_job_with_its_client() -> None:
    async def play(stage: GatewayStage) -> None:
        one, two, held = await held_by_the_first(stage)
        for gateway in (one, two):
            with pytest.raises(InvalidJob):
                await gateway.release(held.lease, 1e12)
        await two.finish(held.lease)

    on_stage(play)


# By id


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_job_is_finished_by_id_on_any_gateway(*, is_elsewhere: bool) -> None:
    async def play(stage: GatewayStage) -> None:
        one, two, _ = await held_by_the_first(stage, id="order-42")
        later = await stage.put(id="order-42", delay=600)
        await (two if is_elsewhere else one).finish_id("order-42")
        assert len(one.held) == 0
        await stage.broker.aio_run_until_idle()
        assert [job.token for job in stage.broker.jobs("t")] == [later.token]

    on_stage(play)


@pytest.mark.parametrize("gateways", [1, 2])
def test_a_job_that_no_gateway_holds_is_deleted_by_id(gateways: int) -> None:
    async def play(stage: GatewayStage) -> None:
        await stage.put(id="order-42", delay=600)
        one, *_ = [await stage.gateway() for _ in range(gateways)]
        await one.finish_id("order-42")
        await is_gone(stage, one)

    on_stage(play)


def test_an_unknown_id_is_finished_without_an_error() -> None:
    async def play(stage: GatewayStage) -> None:
        gateway = await stage.gateway()
        await gateway.finish_id("unknown")

    on_stage(play)


def test_a_job_is_finished_by_id_although_its_gateway_is_gone() -> None:
    async def play(stage: GatewayStage) -> None:
        one, two, _ = await held_by_the_first(stage, id="order-42")
        await stage.disconnect(one)
        await two.finish_id("order-42")
        await is_gone(stage, two)

    on_stage(play)


# What a gateway holds


def test_jobs_that_are_held_go_back_unchanged_when_their_gateway_stops() -> None:
    async def play(stage: GatewayStage) -> None:
        _, two, _ = await held_by_the_first(stage, ttr=3_600)
        stopping = await stage.gateway()
        await stage.put("u", ttr=3_600)
        held = await pop(stopping, "u")
        await stopping.close()
        again = await pop(two, "u")
        assert (again.job.token, again.job.attempt) == (held.job.token, 1)
        with pytest.raises(LeaseLost):
            await two.touch(held.lease)

    on_stage(play)


async def publish_foreign(gateway: Gateway) -> None:
    """Publish a message without our headers, as any program can."""
    publisher = gateway._engine.connections.ready_publisher()
    assert publisher is not None
    confirmed: Future[None] = Future()
    target = Target("", gateway._engine.topology.ready_queue("t"))
    now = publisher.monotonic()
    message = Message(b"{}", {}, message_id="foreign")
    publisher.submit(Pending(message, target, now, now + 10, lambda _: confirmed.set_result(None)))
    await awaiting.result_of(confirmed)
