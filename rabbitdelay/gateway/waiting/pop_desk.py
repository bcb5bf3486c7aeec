"""Long polls: many waiting clients, served in order of arrival by a few pops of the engine.

A pop of the engine holds a channel, and a connection has two thousand. So the waiting clients of
the same topics share pops, and each job goes to the client that has waited longest for its topic.
With more different topics than pops, several of them share a pop.

The desk keeps no job: one that nobody waits for any more goes back to the broker unchanged.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from rabbitdelay.aio import ReservedJob
from rabbitdelay.aio.awaiting import drive
from rabbitdelay.engine.flow import Flow, Wait
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.transport_source import Waiter as Waiting
from rabbitdelay.errors import RabbitDelayError
from rabbitdelay.gateway.waiting.caller_gone import CallerGone
from rabbitdelay.gateway.waiting.waiters import Waiters

MOST_POPS = 300
"""Maximum number of the engine's pops that wait. Each has a channel."""
MOST_POPS_A_LINE = 16
"""Maximum number of pops for the same topics; one receives a job in about a millisecond."""
MOST_IMMEDIATE = 100
"""Maximum number of pops that do not wait; further ones take turns."""

Topics = tuple[str, ...]


class Client(Protocol):
    """The client's pop, as the desk uses it."""

    async def pop(
        self, topics: Sequence[str], *, max: int, wait: float | None
    ) -> list[ReservedJob]:
        """Reserve jobs."""


class _Poll:
    """A waiting client."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.result: Future[ReservedJob | None] = Future()
        """The job; None if the wait was ended without one."""

    def end(self) -> None:
        """End the wait without a job."""
        if not self.result.done():
            self.result.set_result(None)


class _Line:
    """The clients that wait for the same topics, and their pops."""

    def __init__(self) -> None:
        self.polls: Counter[Topics] = Counter()
        """Number of waiting clients by their topics: of one kind, unless lines are short."""
        self.pops: dict[asyncio.Task[None], Topics] = {}

    @property
    def topics(self) -> Topics:
        """All topics that its clients wait for, in a fixed order."""
        return tuple(dict.fromkeys(topic for topics in self.polls for topic in topics))


class PopDesk:
    """Serves the pops of all clients of one gateway."""

    def __init__(
        self,
        client: Client,
        waiting: Waiting | None,
        problem: Callable[[], Exception | None],
        *,
        most_pops: int = MOST_POPS,
    ) -> None:
        self._client = client
        self._waiting = waiting
        """Waits for futures, if the transport is not a driver's."""
        self._problem = problem
        """Returns the error of a pop that ends now without a job; None if it is not one."""
        self._most_pops = most_pops
        self._waiters: Waiters[_Poll] = Waiters()
        self._lines: dict[Topics, _Line] = {}
        self._pops = 0
        self._immediate = asyncio.Semaphore(MOST_IMMEDIATE)
        self._giving_back: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def pops(self) -> int:
        """The number of the engine's pops that wait."""
        return self._pops

    async def pop(
        self, topics: Sequence[str], *, max: int, wait: float, caller_gone: CallerGone
    ) -> list[ReservedJob]:
        """Reserve up to `max` jobs; wait for the first of them, for at most `wait` seconds."""
        if self._is_stopped:
            return []
        if wait <= 0:
            return await self._pop_now(topics, max)
        job = await self._wait_for_job(tuple(sorted(set(topics))), wait, caller_gone)
        if job is None or max == 1:
            return [] if job is None else [job]
        try:
            return [job, *(await self._pop_now(topics, max - 1))]
        except RabbitDelayError:
            return [job]
        except BaseException:
            self._hand_out(job)
            raise

    def stop(self) -> None:
        """End all waits without a job, from now on."""
        self._is_stopped = True
        for poll in self._waiters.all():
            poll.end()

    async def close(self) -> None:
        """Cancel the pops, and wait until surplus jobs are on their way back."""
        self.stop()
        tasks = [task for line in self._lines.values() for task in line.pops]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._giving_back, return_exceptions=True)

    # Waiting

    async def _pop_now(self, topics: Sequence[str], most: int) -> list[ReservedJob]:
        """Reserve jobs that are ready, of the topics for which no client waits already."""
        free = [topic for topic in topics if not self._waiters.is_awaited(topic)]
        if not free:
            return []
        async with self._immediate:
            return await self._client.pop(free, max=most, wait=0)

    async def _wait_for_job(
        self, topics: Topics, wait: float, caller_gone: CallerGone
    ) -> ReservedJob | None:
        poll = _Poll(topics)
        self._enter(poll)
        try:
            with caller_gone.calling(poll.end):
                job = await drive(_result(poll, wait), self._waiting)
        except BaseException:
            self._leave(poll)
            self._pass_on(poll)
            raise
        self._leave(poll)
        if caller_gone.is_set():
            self._pass_on(poll)
            return None
        if job is None and not self._is_stopped:
            problem = self._problem()
            if problem is not None:
                raise problem
        return job

    def _pass_on(self, poll: _Poll) -> None:
        """Give the job of a client that is gone to the next one."""
        if poll.result.done() and poll.result.exception() is None:
            job = poll.result.result()
            if job is not None:
                self._hand_out(job)
        poll.end()

    def _hand_out(self, job: ReservedJob) -> None:
        """Give a job to the client that has waited longest for its topic."""
        while (poll := self._waiters.first(job.topic)) is not None:
            self._leave(poll)
            if not poll.result.done():
                poll.result.set_result(job)
                return
        task = asyncio.get_running_loop().create_task(_give_back(job))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    # Lines

    def _enter(self, poll: _Poll) -> None:
        line = self._lines.get(poll.topics)
        if line is None:
            line = self._line_for_new_topics()
            self._lines[poll.topics] = line
        self._waiters.add(poll, poll.topics)
        line.polls[poll.topics] += 1
        self._adjust(line)

    def _leave(self, poll: _Poll) -> None:
        if poll not in self._waiters:
            return
        self._waiters.remove(poll)
        line = self._lines[poll.topics]
        line.polls[poll.topics] -= 1
        if not line.polls[poll.topics]:
            del line.polls[poll.topics], self._lines[poll.topics]
        self._adjust(line)

    def _line_for_new_topics(self) -> _Line:
        """Return a new line, or the one with the fewest topics if there are as many as pops."""
        lines = list(dict.fromkeys(self._lines.values()))
        if len(lines) < self._most_pops:
            return _Line()
        return min(lines, key=lambda line: len(line.polls))

    def _adjust(self, line: _Line) -> None:
        """Start the pops that a line needs, and cancel those that it does not."""
        topics, wanted = line.topics, min(line.polls.total(), MOST_POPS_A_LINE)
        current = [task for task, of_task in line.pops.items() if of_task == topics]
        for task in line.pops.keys() - set(current[:wanted]):
            self._end_pop(line, task)
        while len(line.pops) < wanted and (self._pops < self._most_pops or not line.pops):
            if self._pops >= self._most_pops:
                self._take_pop_from_another()
            self._start_pop(line, topics)

    def _take_pop_from_another(self) -> None:
        """Cancel a pop of the line that has most, for a line that has none."""
        line = max(self._lines.values(), key=lambda line: len(line.pops))
        self._end_pop(line, next(reversed(line.pops)))

    def _start_pop(self, line: _Line, topics: Topics) -> None:
        task = asyncio.get_running_loop().create_task(self._run(line, topics))
        line.pops[task] = topics
        self._pops += 1

    def _end_pop(self, line: _Line, task: "asyncio.Task[None]") -> None:
        if line.pops.pop(task, None) is not None:
            self._pops -= 1
            task.cancel()

    async def _run(self, line: _Line, topics: Topics) -> None:
        """Receive one job after the other, for as long as the line needs this pop."""
        task = asyncio.current_task()
        assert task is not None
        try:
            while task in line.pops:
                jobs = await self._client.pop(topics, max=1, wait=None)
                if task in line.pops:  # the first to be cancelled, because the others are waiting
                    line.pops[task] = line.pops.pop(task)
                for job in jobs:
                    self._hand_out(job)
        except Exception as error:  # noqa: BLE001 - passed on to the clients that wait
            if line.pops.pop(task, None) is not None:
                self._pops -= 1
                self._fail(line, error)

    def _fail(self, line: _Line, error: Exception) -> None:
        """End the waits of a line whose pop has failed, which would fail again."""
        for poll in self._waiters.all():
            if self._lines.get(poll.topics) is line:
                self._leave(poll)
                if not poll.result.done():
                    poll.result.set_exception(error)


def _result(poll: _Poll, wait: float) -> Flow[ReservedJob | None]:
    with suppress(TimeoutError):
        job: ReservedJob | None = yield Wait(poll.result, wait)
        return job
    return poll.result.result() if poll.result.done() else None


async def _give_back(job: ReservedJob) -> None:
    with suppress(RabbitDelayError):  # it was lost with its connection, or its ttr has passed
        await job.hand_back()
