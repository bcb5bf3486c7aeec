"""Thousands of clients that wait for a job, on one event loop in a thread."""

import asyncio
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from tests.support.gateway.keep_alive_client import KeepAliveClient
from tests.support.patience import patience

WAIT_SECONDS = 50


class ManyClients:
    """Clients with one long poll each, which finish the job that they get."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.received: list[tuple[int, Any]] = []
        """The number of each client that has received a job, and the job's body, in order."""
        self.refused: list[tuple[int, bytes]] = []
        """The other answers."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: list[asyncio.Task[None]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(patience(30))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(patience(10))
        self._loop.close()

    def poll(self, topics: Sequence[Sequence[str]]) -> None:
        """Begin a long poll for each of these topics, in this order."""
        asyncio.run_coroutine_threadsafe(self._poll(topics), self._loop).result(patience(60))

    async def _poll(self, topics: Sequence[Sequence[str]]) -> None:
        for number, of_client in enumerate(topics):
            client = await KeepAliveClient.connect(self._port)
            client.send("/v1/pop", {"topics": list(of_client), "wait": WAIT_SECONDS})
            self._tasks.append(self._loop.create_task(self._receive(number, client)))

    async def _receive(self, number: int, client: KeepAliveClient) -> None:
        try:
            answer = await client.receive()
            if answer.status == 200:
                (job,) = answer.json["jobs"]
                self.received.append((number, job.get("body")))
                await client.ask("/v1/finish", {"lease": job["lease"]})
            else:
                self.refused.append((answer.status, answer.content))
        finally:
            client.close()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
