"""Measure what pending jobs cost the broker, by number and size.

python -m benchmarks.explore_capacity COUNT BODY_BYTES

The broker is measured once it is idle and has collected its garbage. Not part of `make bench`.
"""

import json
import sys
import time
from collections.abc import Iterator

from benchmarks.bench_pending import HOUR_SECONDS
from benchmarks.measuring import TOPIC, broker_memory_bytes, broker_version, disk_bytes
from rabbitdelay import Client, JobSpec
from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.private_broker.node.server_node import ServerNode

REST_SECONDS = 30.0


def specs(count: int, body: bytes) -> Iterator[JobSpec]:
    """Yield jobs that wait in the same hold queue."""
    for _ in range(count):
        yield JobSpec(TOPIC, body, delay=6 * HOUR_SECONDS)


def at_rest(broker: PrivateBroker) -> tuple[int, int]:
    """Return the bytes of memory and disk that the idle broker uses."""
    time.sleep(REST_SECONDS)
    node = broker.nodes[0]
    assert isinstance(node, ServerNode)
    node.control("force_gc")
    time.sleep(REST_SECONDS / 3)
    return broker_memory_bytes(broker), disk_bytes(broker.directory)


def main(count: int, body_bytes: int) -> None:
    """Put the jobs and measure before and after."""
    with PrivateBroker.temporary() as broker, Client(broker.url) as client:
        client.put_many(specs(10, b"x" * body_bytes))
        memory, disk = at_rest(broker)
        began = time.monotonic()
        client.put_many(specs(count, b"x" * body_bytes))
        seconds = time.monotonic() - began
        memory_after, disk_after = at_rest(broker)
        found = {
            "broker": broker_version(broker),
            "jobs": count,
            "body_bytes": body_bytes,
            "put_per_second": round(count / seconds),
            "memory_before_mb": round(memory / 1e6),
            "memory_bytes_per_job": round((memory_after - memory) / count),
            "disk_bytes_per_job": round((disk_after - disk) / count),
        }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
