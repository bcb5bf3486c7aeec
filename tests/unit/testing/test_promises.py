"""The promises of docs/guarantees.md, held against a model, on the broker in memory.

Clients put, replace, reschedule, delete and pause, handlers of two workers finish, fail and exceed
their ttr, connections are cut, also with confirms or acknowledgements on their way, and time
passes, in any order that hypothesis thinks of. After each step:

- no job runs that was deleted, purged or replaced, nor one of a paused topic,
- no job runs before its time, be it the first or a later attempt,
- one handler has a job, for at most its ttr, and a return after that is refused,
- the attempts of a job are counted one by one.

In the end, every job is finished or buried, unless it was deleted. Only where a connection was
lost may a job run again that had run, and only the attempts that handlers were given count.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from rabbitdelay import Client, Job
from rabbitdelay.testing.driver.connection import MemoryConnection
from tests.support.fronts import BlockingClient, LoopThread
from tests.support.memory.manual_worker import WorkerStage
from tests.support.memory.recorded_runs import (
    Record,
    RecordedAioWorker,
    RecordedRun,
    RecordedWorker,
    Taken,
)

TOPICS = ("t", "u")
TTR_SECONDS = 20.0
BACKOFF_SECONDS = 2.0
MAX_ATTEMPTS = 3
RECONNECT_SECONDS = 5.0
"""Time in which clients and workers have connected again."""
LONGEST_DELAY_SECONDS = 3_725.45
WORKERS = 2
ROUNDING_SECONDS = 1e-5
"""Of times on a clock as floats."""
MOST_STEPS = 1_000

A_TOPIC = st.sampled_from(TOPICS)
AN_ID = st.sampled_from(["a", "b", None])
A_DELAY = st.sampled_from([0, 0.03, 1.5, 62.7, LONGEST_DELAY_SECONDS])
SOME_SECONDS = st.sampled_from([0.01, 1, 3, TTR_SECONDS, 70])
A_NUMBER = st.integers(0, 1_000)


@dataclass(eq=False)
class Put:
    """What the model knows of a job, by the token of its put."""

    job: Job
    messages: int = 1
    """How many messages of it there may be: two if its confirm was lost."""
    not_before: float = 0.0
    """The time before which the next attempt must not run."""
    attempt: int = 1
    """The next attempt."""
    is_deleted: bool = False
    is_finished: bool = False
    has_returned: bool = False
    """Whether a handler returned in time, after its connection was lost. Its worker acknowledges
    the job if the broker redelivers it there; any other worker runs it again."""
    is_buried: bool = False
    is_unsure: bool = False
    """Whether a connection was lost that mattered, so that an attempt may run again."""
    runs: list[RecordedRun] = field(default_factory=list)
    """All runs."""
    ended: list[int] = field(default_factory=list)
    """The attempts that failed, or exceeded the ttr."""

    @property
    def is_alive(self) -> bool:
        """Whether it has yet to run."""
        return not (self.is_deleted or self.is_finished or self.is_buried)


class Threads:
    """Clients and workers in threads."""

    def __init__(self, stage: WorkerStage) -> None:
        self._stage = stage
        self.client = stage.client()

    def start_worker(self, number: int, record: Record, handle: Callable[[Any], None]) -> None:
        """Run a worker."""
        worker = RecordedWorker(number, record, concurrency=2, prefetch=2)
        handle(worker)
        self._stage.run(worker)

    def close(self) -> None:
        """Close the broker."""
        self._stage.close()


class Tasks:
    """Clients and workers on an event loop."""

    def __init__(self, stage: WorkerStage) -> None:
        self._stage = stage
        self._loop = LoopThread()
        self.client: Any = BlockingClient(self._loop, self._loop.call(self._new_client()))

    async def _new_client(self) -> Any:  # noqa: ANN401 - made on the loop
        return self._stage.aio_client()

    def start_worker(self, number: int, record: Record, handle: Callable[[Any], None]) -> None:
        """Run a worker."""
        worker = RecordedAioWorker(number, record, concurrency=2, prefetch=2)
        handle(worker)

        async def run() -> None:
            self._stage.run(worker)

        self._loop.call(run())
        self._stage.settle()

    def close(self) -> None:
        """Close the broker, and the event loop."""
        self._loop.call(self._stage.aio_close())
        self._loop.close()


class Promises(RuleBasedStateMachine):
    """Clients and workers, and the model of their jobs."""

    front: ClassVar[type[Threads | Tasks]]

    def __init__(self) -> None:
        super().__init__()
        self.stage = WorkerStage()
        self.record = Record(self.stage.clock)
        self.puts: dict[str, Put] = {}
        self.runs: list[RecordedRun] = []
        """Runs whose handlers have not returned and whose jobs were not taken from them."""
        self.late: list[RecordedRun] = []
        """Runs whose handlers have not returned, though their jobs were taken from them."""
        self.lost: set[RecordedRun] = set()
        """Runs that lost their connection. The broker may have given their jobs to others."""
        self.paused: set[str] = set()
        self.fleet = self.front(self.stage)
        self.client: Client = self.fleet.client
        self.connections: dict[int, MemoryConnection] = {}
        """The connections of the workers by their numbers."""

    @initialize()
    def start(self) -> None:
        self.client.topology.apply(topics=TOPICS)
        for number in range(WORKERS):
            with self._connecting(number):
                self.fleet.start_worker(number, self.record, self._handle)

    def _handle(self, worker: Any) -> None:  # noqa: ANN401 - of either front end
        for topic in TOPICS:
            worker.handler(
                topic, ttr=TTR_SECONDS, backoff=[BACKOFF_SECONDS], max_attempts=MAX_ATTEMPTS
            )(lambda: None)

    # What clients do

    @rule(topic=A_TOPIC, id=AN_ID, delay=A_DELAY)
    def put(self, topic: str, id: str | None, delay: float) -> None:
        self._note_put(self.client.put(topic, id=id, delay=delay))

    @rule(topic=A_TOPIC, count=st.integers(2, 6))
    def put_many(self, topic: str, count: int) -> None:
        for _ in range(count):
            self._note_put(self.client.put(topic))

    @rule(topic=A_TOPIC, id=AN_ID, delay=A_DELAY, is_confirm_lost=st.booleans())
    def put_over_a_connection_that_is_lost(
        self, topic: str, id: str | None, delay: float, *, is_confirm_lost: bool
    ) -> None:
        """The message or its confirm does not arrive, and the client publishes the job again."""
        connection = self._publisher()
        (connection.to_client if is_confirm_lost else connection.to_broker).silence()
        future = self.client.put_nowait(topic, id=id, delay=delay)
        self.stage.settle()
        connection.cut()
        self.stage.advance(RECONNECT_SECONDS)
        put = self._note_put(future.result(0))
        put.messages, put.is_unsure = (2, True) if is_confirm_lost else (1, False)

    @rule(topic=A_TOPIC, id=st.sampled_from(["a", "b"]), delay=A_DELAY, is_put_again=st.booleans())
    def replace(self, topic: str, id: str, delay: float, *, is_put_again: bool) -> None:
        before = self._with_id(id)
        self._note_put(self.client.replace(topic, id=id, delay=delay))
        if is_put_again:  # at once, so that the record of the replace is from the same moment
            self._note_put(self.client.put(topic, id=id))
        self._note_deleted(before)

    @rule(number=A_NUMBER, delay=A_DELAY)
    def reschedule(self, number: int, delay: float) -> None:
        if not self.puts:
            return
        old = self._chosen(number)
        before = self._with_id(old.job.id)
        self._note_put(self.client.reschedule(old.job, delay=delay))
        self._note_deleted(before)

    @rule(number=A_NUMBER)
    def delete_by_id(self, number: int) -> None:
        if self.puts:
            put = self._chosen(number)
            self.client.delete(put.job.id)
            self._note_deleted(self._with_id(put.job.id))

    @rule(number=A_NUMBER)
    def delete_by_job(self, number: int) -> None:
        if self.puts:
            put = self._chosen(number)
            self.client.delete(put.job)
            self._note_deleted([put])

    @rule(topic=A_TOPIC)
    def purge(self, topic: str) -> None:
        self.client.purge(topic)
        before = [put for put in self.puts.values() if put.job.topic == topic]
        self._note_deleted(before)
        for put in before:
            put.is_buried = False

    @rule(topic=A_TOPIC)
    def pause(self, topic: str) -> None:
        self.client.pause(topic)
        self.paused.add(topic)

    @rule()
    def resume(self) -> None:
        for topic in self.paused:
            self.client.resume(topic)
        self.paused.clear()

    # What handlers do

    @rule(number=A_NUMBER)
    def finish(self, number: int) -> None:
        if self.runs:
            self._finish(self.runs.pop(number % len(self.runs)))

    @rule(number=A_NUMBER)
    def fail(self, number: int) -> None:
        if self.runs:
            self._fail(self.runs.pop(number % len(self.runs)))

    @rule(number=A_NUMBER)
    def return_too_late(self, number: int) -> None:
        if self.late:
            run = self.late.pop(number % len(self.late))
            assert not run.finish(), "finished after its ttr"

    # Time and faults

    @rule(seconds=SOME_SECONDS)
    def let_time_pass(self, seconds: float) -> None:
        self.stage.advance(seconds)

    @rule(number=st.integers(0, WORKERS - 1))
    def cut_a_worker(self, number: int) -> None:
        self._cut(number)

    @rule(number=A_NUMBER, fails=st.booleans())
    def cut_a_worker_before_its_settlement_arrives(self, number: int, *, fails: bool) -> None:
        if self.runs:
            run = self.runs.pop(number % len(self.runs))
            self.connections[run.worker].to_broker.silence()
            self._unsure(run).messages += fails  # its copy arrives, and it is redelivered
            (self._fail if fails else self._finish)(run)
            self._cut(run.worker)

    @rule()
    def cut_the_publisher(self) -> None:
        self._publisher().cut()
        self.stage.advance(RECONNECT_SECONDS)

    # What is promised

    @invariant()
    def observe(self) -> None:
        self.stage.settle()
        for event in self.record.take():
            if isinstance(event, Taken):
                self._taken(event.run)
            else:
                self._begun(event)
        now = self.stage.clock()
        for run in self.runs:
            is_in_time = now < run.began_at + TTR_SECONDS + ROUNDING_SECONDS
            assert is_in_time or run in self.lost, "a handler has its job for more than its ttr"

    def _begun(self, run: RecordedRun) -> None:
        job = run.job
        put = self.puts[job.token]
        assert not put.is_deleted, "a deleted job runs"
        assert job.topic not in self.paused, "a job of a paused topic runs"
        assert run.began_at + ROUNDING_SECONDS >= put.job.due_ms / 1000, "early"
        holders = [one for one in self.runs if one.job.token == job.token and one not in self.lost]
        assert len(holders) < put.messages, "two handlers have the job"
        if put.is_unsure:
            attempts = {1, *(one.job.attempt for one in put.runs), *(n + 1 for n in put.ended)}
            assert job.attempt in attempts, "an attempt that no handler was given counts"
        else:
            assert put.is_alive, "a job runs again that was settled"
            assert run.began_at + ROUNDING_SECONDS >= put.not_before, "a retry is early"
            assert job.attempt == put.attempt, "the attempt is wrong"
        put.runs.append(run)
        self.runs.append(run)

    def _taken(self, run: RecordedRun) -> None:
        assert run.taken_at is not None
        assert run.taken_at + ROUNDING_SECONDS >= run.began_at + TTR_SECONDS, (
            "taken before the end of its ttr"
        )
        if run in self.runs:
            self.runs.remove(run)
            self.late.append(run)
        self._note_ended(run, run.taken_at)

    def teardown(self) -> None:
        try:
            if self.connections:
                self._drain()
                self._balance()
        finally:
            self.fleet.close()

    def _drain(self) -> None:
        """Finish everything that is left, when it is due."""
        self.resume()
        for _ in range(MOST_STEPS):
            self.observe()
            while self.runs:
                self._finish(self.runs.pop())
                self.observe()
            dues = [job.due_ms / 1000 for topic in TOPICS for job in self.stage.jobs(topic)]
            if not dues:
                break
            self.stage.advance(max(1.0, min(dues) - self.stage.clock()))

    def _balance(self) -> None:
        left = [name for topic in TOPICS for name in self.stage.left(topic)]
        assert left == [], "these were never handed out"
        assert self.stage.messages(self.stage.topology.unrouted) == []
        buried = sorted(str(job.id) for topic in TOPICS for job in self.stage.buried(topic))
        expected = sorted(put.job.id for put in self.puts.values() if put.is_buried)
        if not any(put.is_unsure for put in self.puts.values()):
            assert buried == expected, f"{buried} are buried, not {expected}"
        for put in self.puts.values():
            is_handled = put.is_finished or put.has_returned
            is_settled = is_handled or put.is_deleted or put.job.id in buried
            assert is_settled, f"{put.job} was lost"

    # The model

    def _note_put(self, job: Job) -> Put:
        put = self.puts[job.token] = Put(job)
        return put

    def _note_deleted(self, some: list[Put]) -> None:
        for put in some:
            put.is_deleted = True

    def _note_ended(self, run: RecordedRun, next_at: float) -> None:
        put = self.puts[run.job.token]
        put.ended.append(run.job.attempt)
        put.attempt, put.not_before = run.job.attempt + 1, next_at
        put.is_buried |= run.job.attempt == MAX_ATTEMPTS and not put.is_deleted

    def _finish(self, run: RecordedRun) -> None:
        is_finished = run.finish()
        assert is_finished or run in self.lost, "a job was lost without its connection"
        put = self.puts[run.job.token]
        put.is_finished |= is_finished
        put.has_returned |= self.stage.clock() < run.began_at + TTR_SECONDS

    def _fail(self, run: RecordedRun) -> None:
        was_given_back = run.fail()
        assert was_given_back or run in self.lost, "a job was lost without its connection"
        if was_given_back:
            self._note_ended(run, self.stage.clock() + BACKOFF_SECONDS)

    def _unsure(self, run: RecordedRun) -> Put:
        put = self.puts[run.job.token]
        put.is_unsure = True
        return put

    def _chosen(self, number: int) -> Put:
        return [*self.puts.values()][number % len(self.puts)]

    def _with_id(self, id: str) -> list[Put]:
        return [put for put in self.puts.values() if put.job.id == id]

    # Connections

    def _publisher(self) -> MemoryConnection:
        return self.stage.connections_of("publisher")[0]

    def _cut(self, number: int) -> None:
        self.observe()
        for run in self.runs:
            if run.worker == number:
                self._unsure(run)
                self.lost.add(run)
        with self._connecting(number):
            self.connections[number].cut()
            self.stage.advance(RECONNECT_SECONDS)

    @contextmanager
    def _connecting(self, number: int) -> Iterator[None]:
        """Note the connection that a worker opens inside the block."""
        before = self.stage.connections_of("consumer")
        yield
        (opened,) = (one for one in self.stage.connections_of("consumer") if one not in before)
        self.connections[number] = opened


SETTINGS = settings(
    stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize("front", [Threads, Tasks], ids=["sync", "aio"])
def test_the_promises_hold(front: type[Threads | Tasks]) -> None:
    """The examples are the same in each run; the slow test looks for new ones."""
    _play(front, settings(SETTINGS, max_examples=25, derandomize=True))


@pytest.mark.slow
@pytest.mark.parametrize("front", [Threads, Tasks], ids=["sync", "aio"])
def test_the_promises_hold_in_other_examples(front: type[Threads | Tasks]) -> None:
    _play(front, settings(SETTINGS, max_examples=1_000))


def _play(front: type[Threads | Tasks], how: settings) -> None:
    machine = type("Promises", (Promises,), {"front": front})
    run_state_machine_as_test(machine, settings=how)
