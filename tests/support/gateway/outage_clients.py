"""Clients that put and pop while the broker of their gateway is killed and started again.

They behave as the documentation asks: each uses one connection for all of its requests, and waits
after a 503 as long as the gateway says. They run on one event loop in a thread.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.support.gateway.keep_alive_client import HttpAnswer, KeepAliveClient
from tests.support.patience import patience, wait_until

DELAYS = (0, 0.2, 1)
BUSY, LATER = "busy", ("later0", "later1", "later2", "later3")
"""The topic of the putters, and those that have jobs only when the test puts them."""
SHORT_WAIT, LONG_WAIT = 2, 50
MOST_AT_ONCE = 20
PAUSE_SECONDS = 0.5
ANSWER_SECONDS = 15
"""Time for an answer, besides the time that the request itself asks the gateway to wait."""


@dataclass(slots=True)
class PutOutcome:
    """A put, and how it was answered."""

    not_before: float
    """Time at which the job is due at the earliest, by the client's clock."""
    status: int | None = None


@dataclass(slots=True)
class OutageHistory:
    """What the clients have seen."""

    puts: dict[str, PutOutcome] = field(default_factory=dict)
    """The puts by the ids of their jobs."""
    received: dict[str, float] = field(default_factory=dict)
    """The time of the first delivery of each job."""
    statuses: set[tuple[str, int]] = field(default_factory=set)
    """The paths and statuses of all answers."""
    without_retry_after: list[HttpAnswer] = field(default_factory=list)
    """The answers with status 503 that do not say when to try again."""

    def ids(self, *statuses: int) -> set[str]:
        """Return the jobs whose puts were answered with these statuses."""
        puts = tuple(self.puts.items())
        return {job_id for job_id, put in puts if put.status in statuses}

    def early(self) -> dict[str, float]:
        """Return the jobs that were received before they were due, with the seconds."""
        found = self.puts.keys() & self.received.keys()
        seconds = {one: self.puts[one].not_before - self.received[one] for one in found}
        return {job_id: early for job_id, early in seconds.items() if early > 0}


class OutageClients:
    """Putters, poppers of their topic, and clients in long polls for other topics."""

    def __init__(self, port: int, *, putters: int, poppers: int, waiting: int) -> None:
        self.history = OutageHistory()
        self._port = port
        self._numbers = itertools.count()
        self._latest: dict[str, dict[int, set[int]]] = {
            "putters": {n: set() for n in range(putters)},
            "poppers": {n: set() for n in range(poppers)},
            "waiting": {n: set() for n in range(waiting)},
        }
        """The statuses that each client was answered since `forget`."""
        self._is_putting = True
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(patience(10))

    def forget(self) -> None:
        """Begin to note anew which client was answered what."""
        for clients in self._latest.values():
            for statuses in clients.values():
                statuses.clear()

    def wait_for(self, kind: str, status: int) -> None:
        """Wait until every client of a kind has received an answer with this status."""
        clients = self._latest[kind].values()
        self.wait_until(
            lambda: all(status in statuses for statuses in clients), f"{status} for all {kind}"
        )

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until a condition holds; fail at once if a client has failed."""
        wait_until(lambda: self._error is not None or condition(), seconds=30, what=what)
        if self._error is not None:
            raise self._error

    def stop_putting(self) -> None:
        """End the putters, after the answers to their last puts."""
        self._is_putting = False
        putting = self._tasks["putters"]
        self.wait_until(lambda: all(task.done() for task in putting), "the last puts")

    # On the event loop

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except asyncio.CancelledError:
            return
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
            self._error = error

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            for kind, statuses in self._latest.items():
                self._tasks[kind] = [group.create_task(self._behave(kind, n)) for n in statuses]

    def _cancel(self) -> None:
        for tasks in self._tasks.values():
            for task in tasks:
                task.cancel()

    async def _behave(self, kind: str, number: int) -> None:
        client = await KeepAliveClient.connect(self._port)
        statuses = self._latest[kind][number]
        try:
            if kind == "putters":
                # Some do not pause, so that puts are under way whenever the broker is killed.
                await self._put(client, statuses, PAUSE_SECONDS if number % 10 else 0)
            elif kind == "poppers":
                await self._pop(client, statuses, BUSY, wait=SHORT_WAIT, most=MOST_AT_ONCE)
            else:
                await self._pop(client, statuses, LATER[number % len(LATER)], wait=LONG_WAIT)
        finally:
            client.close()

    async def _put(self, client: KeepAliveClient, statuses: set[int], pause: float) -> None:
        while self._is_putting:
            number = next(self._numbers)
            job_id, delay = f"job-{number}", DELAYS[number % len(DELAYS)]
            put = self.history.puts[job_id] = PutOutcome(time.time() + delay)
            job = {"id": job_id, "topic": BUSY, "delay": delay}
            answer = await self._ask(client, "/v1/jobs", job)
            put.status = answer.status
            statuses.add(answer.status)
            await asyncio.sleep(float(answer.headers.get("retry-after", pause)))

    async def _pop(
        self, client: KeepAliveClient, statuses: set[int], topic: str, *, wait: float, most: int = 1
    ) -> None:
        while True:
            pop = {"topics": topic, "wait": wait, "max": most}
            answer = await self._ask(client, "/v1/pop", pop, wait)
            statuses.add(answer.status)
            if answer.status == 200:
                answer = await self._finish(client, answer.json["jobs"])
            if answer.status == 503:
                await asyncio.sleep(float(answer.headers.get("retry-after", PAUSE_SECONDS)))

    async def _finish(self, client: KeepAliveClient, jobs: Sequence[dict[str, Any]]) -> HttpAnswer:
        for job in jobs:
            self.history.received.setdefault(job["id"], time.time())
        return await self._ask(client, "/v1/finish", {"leases": [job["lease"] for job in jobs]})

    async def _ask(
        self, client: KeepAliveClient, path: str, value: object, wait: float = 0
    ) -> HttpAnswer:
        answer = await client.ask(path, value, seconds=wait + ANSWER_SECONDS)
        self.history.statuses.add((path, answer.status))
        if answer.status == 503 and "retry-after" not in answer.headers:
            self.history.without_retry_after.append(answer)
        return answer
