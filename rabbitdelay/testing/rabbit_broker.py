"""A real RabbitMQ for integration tests, with the same verbs as the broker in memory."""

import logging
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from rabbitdelay import Client, Worker, aio
from rabbitdelay.aio.client import new_engine as new_aio_engine
from rabbitdelay.engine.client import ClientEngine
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.errors import ManagementUnreachable
from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.sync.client import new_engine
from rabbitdelay.testing import attachment
from rabbitdelay.testing.attachment import Detach

logger = logging.getLogger("rabbitdelay.testing")
URL_VARIABLE = "RABBITDELAY_TEST_URL"
STOP_SECONDS = 30.0
AnyWorker = TypeVar("AnyWorker", Worker, aio.Worker)


@dataclass(frozen=True, slots=True)
class Server:
    """A RabbitMQ for tests."""

    url: str
    management_url: str | None = None
    """URL of its management API; None if it is where clients look for it by default."""


@contextmanager
def started() -> Iterator[Server]:
    """Yield a broker for tests: the one that the environment names, or a private one."""
    if url := os.environ.get(URL_VARIABLE):
        yield Server(url)
    else:
        with PrivateBroker.temporary() as broker:
            yield Server(broker.url, broker.management_url)


class RabbitBroker:
    """A namespace of its own on a real RabbitMQ, which is removed at the end."""

    def __init__(self, server: Server) -> None:
        self.url = server.url
        self._server = server
        self.namespace = f"test-{secrets.token_hex(6)}"
        self._clients: list[Client] = []
        self._threads: list[tuple[Worker, threading.Thread]] = []
        self._attached: list[Detach] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def options(self) -> dict[str, Any]:
        """The options of clients and workers that use this broker."""
        return {"url": self.url, "namespace": self.namespace, "stabilise_seconds": 0}

    def client(self, **options: Any) -> Client:  # noqa: ANN401 - the options of Client
        """Return a client of this broker. It is closed with the broker."""
        client = Client(**(self.options | options))
        self._clients.append(client)
        return client

    def aio_client(self, **options: Any) -> aio.Client:  # noqa: ANN401 - the options of aio.Client
        """Return an asyncio client of this broker, which the test closes."""
        return aio.Client(**(self.options | options))

    def attach(self, worker: AnyWorker) -> AnyWorker:
        """Make a worker of the application use this broker until the end; return it."""
        self._attached.append(attachment.attach_worker(worker, self.options, self._new_engine))
        return worker

    def run(self, worker: Worker) -> Worker:
        """Run a worker of the application on this broker until the end, in a thread; return it."""
        self.attach(worker)
        thread = threading.Thread(target=worker.run, kwargs={"handle_signals": False}, daemon=True)
        self._threads.append((worker, thread))
        thread.start()
        return worker

    def close(self) -> None:
        """Stop the workers, close the clients and remove the namespace."""
        for worker, thread in self._threads:
            worker.stop()
            thread.join(STOP_SECONDS)
        for detach in reversed(self._attached):
            detach()
        for client in self._clients:
            client.close()
        self._remove_namespace()

    def _remove_namespace(self) -> None:
        options = self.options | {"management_url": self._server.management_url}
        with Client(**options) as client:
            if not client.topology.exists():
                return
            try:
                client.topology.remove(force=True)
            except ManagementUnreachable as error:
                logger.warning("namespace %s: not removed (%s)", self.namespace, error)

    def _new_engine(self, settings: ClientSettings, *, is_async: bool) -> ClientEngine:
        return new_aio_engine(settings, None) if is_async else new_engine(settings)
