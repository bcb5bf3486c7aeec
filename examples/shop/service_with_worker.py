"""The shop in one process: the service, with the worker running in its lifespan.

pip install fastapi uvicorn
rabbitdelay broker start                     # or RABBITDELAY_URL
uvicorn service_with_worker:app              # in this folder; Ctrl-C or SIGTERM stops both
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orders
import service
from fastapi import FastAPI
from pydantic import BaseModel

from rabbitdelay.aio import Worker

worker = Worker(namespace=service.NAMESPACE, grace=10)


class Close(BaseModel):
    """The body of an `orderclose` job."""

    order: int


@worker.handler("orderclose")
async def close(body: Close) -> None:
    """Close an order if it was not paid in time."""
    if await asyncio.to_thread(orders.close, body.order):
        print(f"closed order {body.order}", flush=True)


def stop_server(running: asyncio.Task[None]) -> None:
    """Stop the server if the worker has failed, because it would continue without a worker."""
    if not running.cancelled() and (error := running.exception()):
        print(f"the worker failed: {error}", flush=True)
        signal.raise_signal(signal.SIGTERM)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run the worker while the service runs. uvicorn handles the signals."""
    running = asyncio.create_task(worker.run(handle_signals=False))
    running.add_done_callback(stop_server)
    async with service.lifespan(app):
        yield
    worker.stop()
    await running
    print("worker ended", flush=True)


app = FastAPI(lifespan=lifespan)
app.include_router(service.app.router)
