"""An asyncio client of a gateway that sends all its requests on one connection."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from tests.support.patience import patience


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    """By names in lower case."""
    content: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - JSON is anything
        """The content as JSON; None if there is none."""
        return json.loads(self.content) if self.content else None


class KeepAliveClient:
    """One connection to a gateway. A gateway that closes it makes the next answer an error."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> Self:
        """Open the connection."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def ask(self, path: str, value: object, *, seconds: float = 30) -> HttpAnswer:
        """Send a POST request, and return its answer; fail if there is none in time."""
        self.send(path, value)
        async with asyncio.timeout(patience(seconds)):
            return await self.receive()

    def send(self, path: str, value: object) -> None:
        """Send a POST request."""
        body = json.dumps(value)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())

    async def receive(self) -> HttpAnswer:
        """Receive an answer."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
        pairs = (line.partition(":") for line in head[1:])
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        content = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return HttpAnswer(int(head[0].split()[1]), headers, content)
