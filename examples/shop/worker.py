"""Closes orders that were not paid in time, in threads.

    python worker.py             # in this folder, until Ctrl-C or SIGTERM

aio_worker.py is the same with asyncio.
"""

import os

import orders
from pydantic import BaseModel

from rabbitdelay import ReservedJob, Worker

worker = Worker(concurrency=10, namespace=os.environ.get("RABBITDELAY_NAMESPACE", "rabbitdelay"))


class Order(BaseModel):
    """What the job carries."""

    order: int


@worker.handler("orderclose", ttr=30, max_attempts=5)
def close_order(order: Order, job: ReservedJob) -> None:
    """Close an order, if it is still open: the job may come twice."""
    closed = orders.close(order.order)
    print(f"{job.id}: {'closed' if closed else 'was not open'}", flush=True)


if __name__ == "__main__":
    worker.run()
