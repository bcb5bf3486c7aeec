"""A worker that closes unpaid orders, with threads.

    python worker.py             # in this folder, until Ctrl-C or SIGTERM

aio_worker.py is the same with asyncio.
"""

import os

import orders
from pydantic import BaseModel

from rabbitdelay import ReservedJob, Worker

worker = Worker(concurrency=10, namespace=os.environ.get("RABBITDELAY_NAMESPACE", "rabbitdelay"))


class Order(BaseModel):
    """The body of an `orderclose` job."""

    order: int


@worker.handler("orderclose", ttr=30, max_attempts=5)
def close_order(order: Order, job: ReservedJob) -> None:
    """Close an order if it is still open. Idempotent, because a job may be delivered twice."""
    closed = orders.close(order.order)
    print(f"{job.id}: {'closed' if closed else 'was not open'}", flush=True)


if __name__ == "__main__":
    worker.run()
