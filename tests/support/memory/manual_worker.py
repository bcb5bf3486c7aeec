"""A worker on a broker in memory whose handlers run until the test ends them.

No thread runs a handler, so the clock of the broker moves while handlers run, and a test decides on
which side of any other event a handler returns.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Self

from rabbitdelay import Worker
from rabbitdelay.core.amqp import encode
from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.jobs import envelope
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.flow import Flow
from rabbitdelay.engine.settle.settlement import Settlement
from rabbitdelay.engine.transport import Then, nothing
from rabbitdelay.engine.work.run import EndRun, Executor, Run
from rabbitdelay.testing.model.channel import Channel
from rabbitdelay.testing.model.content import Content
from rabbitdelay.testing.model.message import Message
from rabbitdelay.testing.model.vhost import Vhost
from rabbitdelay.testing.wire.inbound import Frames, Publish
from rabbitdelay.testing.wire.outbound import FRAME_MAX
from tests.support.memory.stage import Stage
from tests.support.patience import patience, wait_until


class ManualExecutor:
    """Starts handlers without running them."""

    def __init__(self) -> None:
        self.started: list[str] = []
        """The ids of all jobs whose handler was started, in order."""
        self.abandoned: list[str] = []
        """The ids of the jobs that were taken from their handlers, in order."""
        self.lost = 0
        """Number of abandoned handlers that have not returned, as the test sets it."""
        self.backlog = 0
        """Number of jobs that wait for a thread, as the test sets it."""
        self.nudges = 0
        self.is_closed = False
        self.on_start: Callable[[Run], object] = nothing
        """Called with each run that is started, on the thread that starts it."""
        self._runs: dict[str, tuple[Run, EndRun]] = {}

    # Called by the worker

    def start(self, run: Run, end: EndRun) -> None:
        """Note the start of a handler."""
        self.started.append(run.lease.job.id)
        self._runs[run.lease.job.id] = (run, end)
        self.on_start(run)

    def abandon(self, run: Run, told: Then = nothing) -> None:
        """Note that a job was taken from its handler."""
        self.abandoned.append(run.lease.job.id)
        told()

    @property
    def has_backlog(self) -> bool:
        """Whether a job waits for a thread."""
        return self.backlog > 0

    def nudge(self) -> None:
        """Note a nudge."""
        self.nudges += 1

    def close(self) -> Flow[None]:
        """Note the end."""
        self.is_closed = True
        yield from ()

    # Called by the test

    def run_of(self, id: str) -> Run:
        """Return the newest run of a job."""
        return self._runs[id][0]

    def lease_of(self, id: str) -> Lease:
        """Return the lease of the newest run of a job."""
        return self.run_of(id).lease

    def end(self, id: str, settle: Callable[[], None] = nothing) -> None:
        """Return from the handler of a job, and settle the job in the same step."""
        run, end = self._runs[id]
        end(run, settle)


class ManualWorker(Worker):
    """A worker whose handlers run until the test ends them."""

    def __init__(
        self,
        *topics: str,
        run: Mapping[str, Any] | None = None,
        **options: Any,  # noqa: ANN401 - the options of Worker
    ) -> None:
        super().__init__("amqp://nowhere.invalid", **options)
        self.executor = ManualExecutor()
        self.runs_ended = 0
        """Number of calls of `run` that have returned or raised."""
        self._run_options = dict(run or {})
        self._consumer: Consumer | None = None
        for topic in topics:
            self.handle(topic)

    def handle(self, topic: str, **options: Any) -> Self:  # noqa: ANN401 - the options of handler
        """Add a topic; return this worker."""
        self.handler(topic, **options)(_handle)
        return self

    def run(self, **options: Any) -> None:  # noqa: ANN401 - the options of run
        """Run with the options given to the constructor."""
        try:
            super().run(**options | self._run_options)
        finally:
            self.runs_ended += 1

    def finish(self, *ids: str) -> None:
        """Return from the handlers of jobs, which finishes the jobs."""
        for name in ids:
            settle = partial(self.settlement.finish_returned, self.executor.lease_of(name))
            self.executor.end(name, settle)

    @property
    def settlement(self) -> Settlement:
        """The settlement of the current run."""
        return self.consumer.settlement

    @property
    def consumer(self) -> Consumer:
        """The consumer of the current run."""
        assert self._consumer is not None
        return self._consumer

    def _new_executor(self, consumer: Consumer) -> Flow[Executor]:
        self._consumer = consumer
        yield from ()
        return self.executor


class WorkerStage(Stage):
    """A stage whose clock moves while handlers run."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - the options of Stage
        super().__init__(**options)
        self.watch = _unwatched
        self._putter = self.client()

    def begin(self, worker: ManualWorker) -> ManualWorker:
        """Run a worker; return it when it consumes its topics."""
        self.run(worker)
        return worker

    def put(self, *ids: str, topic: str = "t", **options: Any) -> None:  # noqa: ANN401 - of put
        """Put jobs, and let everything happen that needs no time."""
        for name in ids:
            self._putter.put(topic, id=name, **options)
        self.settle()

    def delete(self, *ids: str) -> None:
        """Delete jobs."""
        for name in ids:
            self._putter.delete(name)
        self.settle()

    def pause(self, topic: str = "t") -> None:
        """Pause a topic."""
        self._putter.pause(topic)
        self.settle()

    def resume(self, topic: str = "t") -> None:
        """Resume a topic."""
        self._putter.resume(topic)
        self.settle()

    def left(self, topic: str = "t") -> list[str]:
        """Return the ids of the jobs of a topic that are not settled, reserved ones included."""
        return [job.id for job in self.jobs(topic)]

    def ready(self, topic: str = "t") -> list[str | None]:
        """Return the ids of the ready messages of a topic, without those that a consumer has."""
        return self.messages(self.topology.ready_queue(topic))

    def publish_plain(self, id: str, topic: str = "t", **headers: int) -> None:
        """Publish a message to the ready queue of a topic, as another program does."""
        message = envelope.Message(b"{}", headers, message_id=id)
        self.publish_message(message, self.topology.ready_queue(topic))

    def publish_message(self, message: envelope.Message, queue: str) -> None:
        """Publish a message to a queue or a stream."""
        (found,) = Frames().feed(encode.publish(1, "", queue, message, FRAME_MAX))
        assert isinstance(found, Publish)
        content = Content.of(found.header, found.body)
        self.on_broker(lambda vhost: vhost.publish(Message("", queue, content)))
        self.settle()

    def publish_suspect(self, id: str, topic: str = "t") -> None:
        """Publish a job whose consumers have died, as far as the broker's count says."""
        self.publish_plain(id, topic, **{"x-delivery-count": 5})

    def returns(self, topic: str = "t") -> list[int]:
        """Return for each ready message of a topic how often it was delivered and returned."""

        def count(vhost: Vhost) -> list[int]:
            queue = vhost.queue(self.topology.ready_queue(topic))
            return [entry.returns for entry in queue.entries()]

        return self.on_broker(count)

    @contextmanager
    def held_back(self, topic: str = "t") -> Iterator[None]:
        """Keep ready jobs of a topic in its queue inside the block, whoever consumes it."""
        queue = self.on_broker(lambda vhost: vhost.queue(self.topology.ready_queue(topic)))
        consumers, queue.consumers = queue.consumers, []
        try:
            yield
        finally:
            queue.consumers = consumers
            self.on_broker(lambda _: queue.serve())

    def consumer_count(self, topic: str = "t") -> int:
        """Return the number of consumers of a topic."""

        def count(vhost: Vhost) -> int:
            queue = vhost.queues.get(self.topology.ready_queue(topic))
            return 0 if queue is None else len(queue.consumers)

        return self.on_broker(count)

    def wait_until_consumed(self, topic: str = "t") -> None:
        """Wait for a worker that runs in a thread of the test."""
        wait_until(lambda: self.consumer_count(topic) > 0)
        self.settle()

    def wait_until_ended(self, worker: ManualWorker, runs: int = 1) -> None:
        """Advance the time until `run` of a worker has returned or raised that often."""

        def has_ended() -> bool:
            self._begin(timedelta(seconds=0.1)).result(patience(10))
            return worker.runs_ended >= runs

        wait_until(has_ended)

    def close_channel_of(self, worker: ManualWorker, id: str) -> None:
        """Have the broker close the channel on which a job was delivered."""
        number = worker.executor.lease_of(id).channel
        self.close_channel("consumer", number, 406, "PRECONDITION_FAILED - consumer_timeout")

    def close_log_channel(self) -> None:
        """Have the broker close the channel on which the log of deletes is read."""
        log = self.topology.log().queue.name

        def numbers(vhost: Vhost) -> list[int]:
            channels = [consumer.channel for consumer in vhost.queue(log).consumers]
            return [one.number for one in channels if isinstance(one, Channel)]

        (number,) = self.on_broker(numbers)
        self.close_channel("consumer", number, 541, "INTERNAL_ERROR")

    def lose_to_another_consumer(self, topic: str = "t") -> None:
        """Cut the worker's connection, and let another consumer take the jobs that it had."""
        self.on_broker(partial(self._take_over, topic))
        self.connection("consumer").cut()
        self.settle()

    def _take_over(self, topic: str, _vhost: Vhost) -> None:
        other = self.links.endpoint.sessions.open(nothing)
        other.open_channel(1)
        queue = self.topology.ready_queue(topic)
        other.on_channel(1, lambda channel: channel.consume(queue, "other", {}))
        self.session("consumer").end()
        other.on_channel(1, lambda channel: channel.cancel("other"))

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        """Call a function after a delay, before the timers that are set later for that time."""
        endpoint = self.links.endpoint
        endpoint.timeline.call_later(endpoint.place, seconds, act)


def _unwatched(executor: Executor) -> Executor:
    return executor


def _handle() -> None:
    """Do nothing: the test ends the handler."""
