"""Long polls are served in order of arrival, by few pops, and no job is lost on the way.

The client is a stub whose pops the test ends, so that every race can be constructed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbitdelay.aio import ReservedJob
from rabbitdelay.errors import CutOff, LeaseLost, PermissionRefused
from rabbitdelay.gateway.waiting.caller_gone import CallerGone
from rabbitdelay.gateway.waiting.pop_desk import MOST_POPS, MOST_POPS_A_LINE, PopDesk
from tests.support.patience import patience

LONG = 3_600.0
SOON = 0.01


class StubJob:
    """A job that notes whether it was handed back."""

    def __init__(self, topic: str, name: object = "") -> None:
        self.topic = topic
        self.name = name
        self.is_handed_back = False

    async def hand_back(self) -> None:
        self.is_handed_back = True


class StubClient:
    """A client whose pops wait until the test gives them a job."""

    def __init__(self) -> None:
        self.pops: dict[asyncio.Future[list[StubJob]], Sequence[str]] = {}
        self.immediate: list[tuple[Sequence[str], int]] = []
        self.ready: list[StubJob] = []
        """What pops that do not wait find."""

    async def pop(self, topics: Sequence[str], *, max: int, wait: float | None) -> Any:  # noqa: ANN401 - stubs
        if wait == 0:
            self.immediate.append((topics, max))
            found = [job for job in self.ready if job.topic in topics][:max]
            self.ready = [job for job in self.ready if job not in found]
            return found
        assert max == 1
        assert wait is None
        future: asyncio.Future[list[StubJob]] = asyncio.get_running_loop().create_future()
        self.pops[future] = topics
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # as the client does
                for job in future.result():
                    await job.hand_back()
            raise
        finally:
            del self.pops[future]

    def give(self, job: StubJob) -> None:
        """Have a pop that waits for the job's topic receive it."""
        future = next(
            one for one, topics in self.pops.items() if job.topic in topics and not one.done()
        )
        future.set_result([job])

    def fail(self, topic: str, error: Exception) -> None:
        """Have a pop of a topic fail."""
        next(one for one, topics in self.pops.items() if topic in topics).set_exception(error)


class Stage:
    """A desk, its stub client, and clients that wait."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.client = StubClient()
        self.desk = PopDesk(self.client, None, lambda: problem)
        self.order: list[object] = []
        """The names of the clients that got a job, in order."""
        self.received: list[StubJob] = []
        self.tasks: list[asyncio.Task[list[StubJob]]] = []

    def poll(
        self,
        *topics: str,
        name: object = "",
        wait: float = LONG,
        max: int = 1,
        gone: CallerGone | None = None,
    ) -> asyncio.Task[list[StubJob]]:
        """Begin a long poll."""

        async def run() -> list[StubJob]:
            caller_gone = gone or CallerGone()
            jobs = await self.desk.pop(topics, max=max, wait=wait, caller_gone=caller_gone)
            found = [cast("StubJob", job) for job in jobs]
            if found:
                self.order.append(name)
                self.received += found
            return found

        task = asyncio.create_task(run())
        self.tasks.append(task)
        return task

    async def settle(self) -> None:
        """Let every task run until it waits."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def give(self, *jobs: StubJob) -> None:
        for job in jobs:
            self.client.give(job)
            await self.settle()

    async def close(self) -> None:
        await self.desk.close()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert self.client.pops == {}
        assert len(self.desk) == self.desk.pops == 0


def on_stage(play: Callable[[Stage], Awaitable[None]], problem: Exception | None = None) -> None:
    """Run a test on a stage, which is clean at its end."""

    async def run() -> None:
        stage = Stage(problem)
        async with asyncio.timeout(patience(20)):
            try:
                await play(stage)
            finally:
                await stage.close()

    asyncio.run(run())


def test_clients_are_served_in_order_of_arrival() -> None:
    async def play(stage: Stage) -> None:
        for name in range(100):
            stage.poll("t", name=name)
        await stage.settle()
        await stage.give(*(StubJob("t") for _ in range(100)))
        assert stage.order == list(range(100))

    on_stage(play)


def test_jobs_that_arrive_together_are_given_in_order_of_arrival() -> None:
    async def play(stage: Stage) -> None:
        for name in range(MOST_POPS_A_LINE):
            stage.poll("t", name=name)
        await stage.settle()
        for _ in range(MOST_POPS_A_LINE):
            stage.client.give(StubJob("t"))
        await stage.settle()
        assert stage.order == list(range(MOST_POPS_A_LINE))

    on_stage(play)


def test_a_client_of_several_topics_has_its_place_in_each_line() -> None:
    async def play(stage: Stage) -> None:
        stage.poll("a", "b", name="both")
        stage.poll("a", name="a")
        stage.poll("b", name="b")
        await stage.settle()
        await stage.give(StubJob("b"), StubJob("b"), StubJob("a"))
        assert stage.order == ["both", "b", "a"]

    on_stage(play)


def test_the_order_of_topics_makes_no_difference() -> None:
    async def play(stage: Stage) -> None:
        stage.poll("a", "b", name=1)
        stage.poll("b", "a", "b", name=2)
        await stage.settle()
        assert set(stage.client.pops.values()) == {("a", "b")}
        await stage.give(StubJob("a"), StubJob("b"))
        assert stage.order == [1, 2]

    on_stage(play)


def test_many_clients_of_one_topic_share_a_few_pops() -> None:
    async def play(stage: Stage) -> None:
        for _ in range(2_000):
            stage.poll("t")
        await stage.settle()
        assert len(stage.client.pops) == stage.desk.pops == MOST_POPS_A_LINE

    on_stage(play)


def test_each_client_of_a_few_has_a_pop() -> None:
    async def play(stage: Stage) -> None:
        for count in range(1, 6):
            stage.poll("t")
            await stage.settle()
            assert len(stage.client.pops) == count

    on_stage(play)


def test_clients_of_more_topics_than_pops_share_them() -> None:
    async def play(stage: Stage) -> None:
        topics = [f"t{n}" for n in range(2_000)]
        for topic in topics:
            stage.poll(topic, name=topic)
        await stage.settle()
        assert len(stage.client.pops) == stage.desk.pops == MOST_POPS
        watched = [topic for of_pop in stage.client.pops.values() for topic in of_pop]
        assert sorted(watched) == sorted(topics)
        for topic in (topics[0], topics[1_000], topics[-1]):
            await stage.give(StubJob(topic))
        assert stage.order == [topics[0], topics[1_000], topics[-1]]
        assert len(stage.client.pops) <= MOST_POPS

    on_stage(play)


def test_a_topic_gets_a_pop_when_others_have_them_all() -> None:
    async def play(stage: Stage) -> None:
        busy = MOST_POPS // MOST_POPS_A_LINE + 1
        for topic in range(busy):
            for _ in range(MOST_POPS_A_LINE):
                stage.poll(f"busy{topic}")
        await stage.settle()
        assert len(stage.client.pops) == MOST_POPS
        stage.poll("late", name="late")
        await stage.settle()
        assert len(stage.client.pops) == MOST_POPS
        await stage.give(StubJob("late"))
        assert stage.order == ["late"]
        for topic in range(busy):
            await stage.give(StubJob(f"busy{topic}"))
        assert len(stage.order) == busy + 1

    on_stage(play)


def test_pops_that_are_not_needed_are_cancelled() -> None:
    async def play(stage: Stage) -> None:
        gone = [CallerGone() for _ in range(5)]
        for one in gone:
            stage.poll("t", gone=one)
        await stage.settle()
        for left, one in reversed(list(enumerate(gone))):
            one.set()
            await stage.settle()
            assert len(stage.client.pops) == left

    on_stage(play)


def test_a_pop_goes_on_for_the_next_client_after_its_job() -> None:
    async def play(stage: Stage) -> None:
        for name in range(MOST_POPS_A_LINE + 1):
            stage.poll("t", name=name)
        await stage.settle()
        await stage.give(StubJob("t"))
        assert len(stage.client.pops) == MOST_POPS_A_LINE
        await stage.give(StubJob("t"))
        assert len(stage.client.pops) == MOST_POPS_A_LINE - 1

    on_stage(play)


def test_a_wait_ends_after_its_time_without_a_job() -> None:
    async def play(stage: Stage) -> None:
        assert await stage.poll("t", wait=SOON) == []
        await stage.settle()
        assert stage.client.pops == {}

    on_stage(play)


def test_a_wait_that_ends_while_jobs_could_not_be_handed_out_is_an_error() -> None:
    async def play(stage: Stage) -> None:
        with pytest.raises(CutOff):
            await stage.poll("t", wait=SOON)

    on_stage(play, CutOff("the log cannot be read"))


def test_a_failed_pop_is_the_error_of_its_clients_only() -> None:
    async def play(stage: Stage) -> None:
        failing = [stage.poll("bad") for _ in range(40)]
        stage.poll("good", name="good")
        await stage.settle()
        stage.client.fail("bad", PermissionRefused("not this queue"))
        await stage.settle()
        for task in failing:
            with pytest.raises(PermissionRefused):
                await task
        assert set(stage.client.pops.values()) == {("good",)}
        await stage.give(StubJob("good"))
        assert stage.order == ["good"]

    on_stage(play)


# Without waiting


def test_a_pop_that_does_not_wait_goes_straight_to_the_client() -> None:
    async def play(stage: Stage) -> None:
        stage.client.ready = [StubJob("b"), StubJob("b")]
        assert len(await stage.poll("a", "b", wait=0, max=5)) == 2
        assert stage.client.immediate == [(["a", "b"], 5)]

    on_stage(play)


def test_a_pop_that_does_not_wait_takes_no_job_from_a_client_that_does() -> None:
    async def play(stage: Stage) -> None:
        stage.poll("a", name="first")
        await stage.settle()
        stage.client.ready = [StubJob("a"), StubJob("b")]
        (found,) = await stage.poll("a", "b", wait=0, max=5)
        assert found.topic == "b"
        assert await stage.poll("a", wait=0) == []
        assert stage.client.immediate == [(["b"], 5)]

    on_stage(play)


def test_the_rest_of_several_jobs_is_not_waited_for() -> None:
    async def play(stage: Stage) -> None:
        task = stage.poll("t", max=3)
        await stage.settle()
        stage.client.ready = [StubJob("t") for _ in range(5)]
        await stage.give(StubJob("t"))
        assert len(await task) == 3
        assert [(tuple(topics), most) for topics, most in stage.client.immediate] == [(("t",), 2)]

    on_stage(play)


# Clients that leave


def test_a_client_that_leaves_is_skipped() -> None:
    async def play(stage: Stage) -> None:
        gone = CallerGone()
        stage.poll("t", name="leaves", gone=gone)
        stage.poll("t", name="stays")
        await stage.settle()
        gone.set()
        await stage.give(StubJob("t"))
        assert stage.order == ["stays"]

    on_stage(play)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_job_whose_client_leaves_in_that_moment_goes_to_the_next_one(
    *, is_cancelled: bool
) -> None:
    """The client has been given the job, and has not run since."""

    async def play(stage: Stage) -> None:
        gone = CallerGone()
        leaving = stage.poll("t", name="leaves", gone=gone)
        stage.poll("t", name="stays")
        await stage.settle()
        job = StubJob("t")
        stage.desk._hand_out(cast("ReservedJob", job))
        leaving.cancel() if is_cancelled else gone.set()
        await stage.settle()
        assert stage.order == ["stays"]
        assert not job.is_handed_back

    on_stage(play)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_job_whose_last_client_leaves_in_that_moment_goes_back(*, is_cancelled: bool) -> None:
    async def play(stage: Stage) -> None:
        gone = CallerGone()
        leaving = stage.poll("t", gone=gone)
        await stage.settle()
        job = StubJob("t")
        stage.desk._hand_out(cast("ReservedJob", job))
        leaving.cancel() if is_cancelled else gone.set()
        await stage.settle()
        assert stage.order == []
        assert job.is_handed_back

    on_stage(play)


def test_a_job_that_arrives_as_its_pop_is_cancelled_goes_back() -> None:
    async def play(stage: Stage) -> None:
        gone = CallerGone()
        stage.poll("t", gone=gone)
        await stage.settle()
        job = StubJob("t")
        stage.client.give(job)  # the pop has the job, and has not run since
        gone.set()
        await stage.settle()
        assert job.is_handed_back

    on_stage(play)


def test_a_job_that_cannot_be_handed_back_does_no_harm() -> None:
    class LostJob(StubJob):
        async def hand_back(self) -> None:
            raise LeaseLost("its ttr has passed")

    async def play(stage: Stage) -> None:
        stage.desk._hand_out(cast("ReservedJob", LostJob("t")))
        await stage.settle()

    on_stage(play)


def test_a_client_that_has_left_already_does_not_wait() -> None:
    async def play(stage: Stage) -> None:
        gone = CallerGone()
        gone.set()
        assert await stage.poll("t", gone=gone) == []

    on_stage(play)


# The end


def test_stop_ends_all_waits_without_a_job() -> None:
    async def play(stage: Stage) -> None:
        tasks = [stage.poll("t") for _ in range(30)]
        await stage.settle()
        stage.desk.stop()
        assert [await task for task in tasks] == [[]] * 30
        assert await stage.poll("t", wait=LONG) == []
        assert await stage.poll("t", wait=0) == []
        assert stage.client.immediate == []

    on_stage(play, CutOff("which does not matter any more"))


STEPS = st.lists(
    st.tuples(st.just("poll"), st.sets(st.sampled_from("abc"), min_size=1))
    | st.tuples(st.just("gone"), st.integers(0, 10))
    | st.tuples(st.just("job"), st.sampled_from("abc"))
    | st.tuples(st.just("turn"), st.just(None)),
    max_size=40,
)


@settings(max_examples=200)
@given(STEPS)
def test_every_job_is_received_once_or_handed_back(steps: list[tuple[str, Any]]) -> None:
    async def play(stage: Stage) -> None:
        gone: list[CallerGone] = []
        jobs: list[StubJob] = []
        for step, value in steps:
            match step:
                case "poll":
                    gone.append(CallerGone())
                    stage.poll(*value, gone=gone[-1])
                case "gone" if value < len(gone):
                    gone[value].set()
                case "job":
                    with suppress(StopIteration):
                        job = StubJob(value)
                        stage.client.give(job)
                        jobs.append(job)
                case "turn":
                    await asyncio.sleep(0)
        await stage.settle()
        for job in jobs:
            assert stage.received.count(job) + job.is_handed_back == 1

    on_stage(play)
