"""Thousands of clients that wait for a job, on one event loop in a thread."""

import asyncio
import json
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

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
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            _send(writer, "/v1/pop", {"topics": list(of_client), "wait": WAIT_SECONDS})
            self._tasks.append(self._loop.create_task(self._receive(number, reader, writer)))

    async def _receive(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            status, body = await _answer(reader)
            if status == 200:
                (job,) = json.loads(body)["jobs"]
                self.received.append((number, job.get("body")))
                _send(writer, "/v1/finish", {"lease": job["lease"]})
                await _answer(reader)
            else:
                self.refused.append((status, body))
        finally:
            writer.close()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _send(writer: asyncio.StreamWriter, path: str, value: object) -> None:
    body = json.dumps(value)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    lengths = [int(line.split(":")[1]) for line in head if line.startswith("content-length")]
    return int(head[0].split()[1]), await reader.readexactly(lengths[0] if lengths else 0)
