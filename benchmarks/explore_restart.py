"""Restart: is a job that came due while the broker was down ready right after?

Not run by `make bench`: `python benchmarks/explore_restart.py [RESTARTS]`. Each restart puts a job
through new queues, kills the broker with -9, lets the due time pass, starts it, and looks where
the job is after at most 12 s.
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
    """How many messages are in a queue."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        return connection.channel().queue_declare(queue, passive=True).method.message_count or 0


def restart_over_due_time(broker: PrivateBroker, topology: Topology) -> None:
    """Put, kill, wait until it is due, start."""
    with Client(broker.url, namespace=topology.namespace, timeout=60) as client:
        job = client.put("t", delay=DELAY_SECONDS)
    broker.nodes[0].kill()
    time.sleep(max(0.0, job.due_ms / 1000 - time.time()))
    broker.start()


def whereabouts(broker: PrivateBroker, topology: Topology) -> str:
    """Where the job is: nobody sends it on here, as no client is connected."""
    deadline = time.monotonic() + WATCH_SECONDS
    while time.monotonic() < deadline:
        if waiting(broker, topology.ready_queue("t")):
            return "ready"
        time.sleep(0.05)
    return "unrouted" if waiting(broker, topology.unrouted) else "held by the dead-letter worker"


def main(restarts: int) -> None:
    """Count where the jobs are."""
    found: Counter[str] = Counter()
    with PrivateBroker.temporary() as broker:
        for number in range(restarts):
            topology = Topology(f"restart{number}")
            restart_over_due_time(broker, topology)
            found[whereabouts(broker, topology)] += 1
    print(dict(found))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
