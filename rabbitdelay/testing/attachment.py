"""Clients and workers of the application, attached to another broker for the time of a test."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from rabbitdelay import Client, Worker, aio
from rabbitdelay.core.work.outcome import Outcome
from rabbitdelay.engine.client import ClientEngine
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.models import Job

AnyClient = Client | aio.Client
AnyWorker = Worker | aio.Worker
Changes = Mapping[str, Any]
Detach = Callable[[], None]


class NewEngine(Protocol):
    """Makes the engine of a client or a worker."""

    def __call__(self, settings: ClientSettings, *, is_async: bool) -> ClientEngine:
        """Return an engine with these settings."""


def attach_client(client: AnyClient, changes: Changes, new_engine: NewEngine) -> Detach:
    """Change settings of a client that is not in use; return a function that undoes it."""
    before = client._engine  # noqa: SLF001 - this file exchanges it
    settings = replace(before.settings, **changes)
    client._engine = new_engine(settings, is_async=isinstance(client, aio.Client))  # noqa: SLF001

    def detach() -> None:
        client._engine = before  # noqa: SLF001

    return detach


def attach_worker(worker: AnyWorker, changes: Changes, new_engine: NewEngine) -> Detach:
    """Change settings of a worker that does not run; return a function that undoes it."""
    before, engine = worker._new_engine, worker._engine  # noqa: SLF001 - this file exchanges them
    settings = replace(engine.settings, **changes)
    is_async = isinstance(worker, aio.Worker)

    def use(new_engine: Callable[[], ClientEngine]) -> None:
        worker._new_engine = new_engine  # noqa: SLF001
        worker._renew_client()  # noqa: SLF001

    use(partial(new_engine, settings, is_async=is_async))
    return lambda: use(before)


def attach_hook(
    worker: AnyWorker, on_error: Callable[[Job, BaseException, Outcome], None]
) -> Detach:
    """Call a hook with each failed job of a worker; return a function that undoes it."""
    worker.on_error(on_error)
    hooks = worker._hooks.on_error  # noqa: SLF001 - users cannot remove a hook
    return lambda: hooks.remove(on_error)
