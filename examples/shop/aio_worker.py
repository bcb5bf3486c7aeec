"""A worker that closes unpaid orders, with asyncio.

    python aio_worker.py         # in this folder, until Ctrl-C or SIGTERM

worker.py is the same with threads.
"""

import asyncio
import os

import orders
from pydantic import BaseModel

from rabbitdelay import Job
from rabbitdelay.aio import Worker

worker = Worker(concurrency=10, namespace=os.environ.get("RABBITDELAY_NAMESPACE", "rabbitdelay"))


class Order(BaseModel):
    """The body of an `orderclose` job."""

    order: int


@worker.handler("orderclose", ttr=30, max_attempts=5)
async def close_order(order: Order, job: Job) -> None:
    """Close an order if it is still open. Idempotent, because a job may be delivered twice."""
    closed = await asyncio.to_thread(orders.close, order.order)
    print(f"{job.id}: {'closed' if closed else 'was not open'}", flush=True)


if __name__ == "__main__":
    asyncio.run(worker.run())
