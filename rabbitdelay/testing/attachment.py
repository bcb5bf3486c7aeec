"""Clients and workers of the application, attached to a broker in memory for the time of a test."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rabbitdelay import Client, Worker, aio
from rabbitdelay.engine.client import ClientEngine
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.transport_source import TransportSource

AnyClient = Client | aio.Client
AnyWorker = Worker | aio.Worker
Detach = Callable[[], None]


def attach_client(client: AnyClient, source: TransportSource) -> Detach:
    """Connect a client over another transport; return a function that undoes it."""
    before = client._engine  # noqa: SLF001 - this file exchanges it
    is_async = isinstance(client, aio.Client)
    client._engine = _new_engine(before.settings, source, is_async=is_async)  # noqa: SLF001

    def detach() -> None:
        client._engine = before  # noqa: SLF001

    return detach


def attach_worker(worker: AnyWorker, source: TransportSource) -> Detach:
    """Connect a worker over another transport; return a function that undoes it."""
    new_engine_before, engine = worker._new_engine, worker._engine  # noqa: SLF001
    is_async = isinstance(worker, aio.Worker)
    new_engine = partial(_new_engine, engine.settings, source, is_async=is_async)

    def use(new_engine: Callable[[], ClientEngine]) -> None:
        worker._new_engine = new_engine  # noqa: SLF001
        worker._renew_client()  # noqa: SLF001

    use(new_engine)
    return lambda: use(new_engine_before)


def _new_engine(
    settings: ClientSettings, source: TransportSource, *, is_async: bool
) -> ClientEngine:
    """Return an engine with the same settings. New queues need no time to become safe here."""
    here = replace(settings, url=None, transport=source, stabilise_seconds=0)
    return ClientEngine.over(source, here, is_async=is_async)
