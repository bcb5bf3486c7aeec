"""Test whether a job that came due while the broker was down is ready right after a restart.

Not part of `make bench`: run `python benchmarks/explore_restart.py [RESTARTS]`. Each round puts a
job through new queues, kills the broker with -9, lets the due time pass, starts the broker, and
locates the job after at most 12 s.
"""

import sys
import time
from collections import Counter

import pika

from rabbitdelay import Client
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.private_broker import PrivateBroker

DELAY_SECONDS = 4
WATCH_SECONDS = 12.0


def waiting(broker: PrivateBroker, queue: str) -> int:
    """Return the number of messages in a queue."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        return connection.channel().queue_declare(queue, passive=True).method.message_count or 0


def restart_over_due_time(broker: PrivateBroker, topology: Topology) -> None:
    """Put a job, kill the broker, wait until the job is due, and start the broker."""
    with Client(broker.url, namespace=topology.namespace, timeout=60) as client:
        job = client.put("t", delay=DELAY_SECONDS)
    broker.nodes[0].kill()
    time.sleep(max(0.0, job.due_ms / 1000 - time.time()))
    broker.start()


def whereabouts(broker: PrivateBroker, topology: Topology) -> str:
    """Return the location of the job. No client is connected that could resend it."""
    deadline = time.monotonic() + WATCH_SECONDS
    while time.monotonic() < deadline:
        if waiting(broker, topology.ready_queue("t")):
            return "ready"
        time.sleep(0.05)
    return "unrouted" if waiting(broker, topology.unrouted) else "kept by the dead-letter worker"


def main(restarts: int) -> None:
    """Count the locations of the jobs."""
    found: Counter[str] = Counter()
    with PrivateBroker.temporary() as broker:
        for number in range(restarts):
            topology = Topology(f"restart{number}")
            restart_over_due_time(broker, topology)
            found[whereabouts(broker, topology)] += 1
    print(dict(found))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
