"""Test first use under kill -9: a put that returned must not be lost. Not part of `make bench`.

Usage: first_use_kills.py [ROUNDS [FRESH [STABILISE_SECONDS]]]

In each of ROUNDS, two clients concurrently put through the same new hold queue and into the same
new topic, and the broker is killed as soon as one to four of these puts have returned. FRESH is the
number of brokers that are killed after their very first put has returned, and that then receive a
put and a delete. With STABILISE_SECONDS 0, new queues are neither flushed nor waited for, which
shows the losses without these measures.
"""

import secrets
import sys
import threading
import time
from dataclasses import dataclass, field

import pika

from benchmarks.measuring import broker_version
from rabbitdelay import Client
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.private_broker import PrivateBroker

MINUTE_SECONDS = 60
TIMEOUT_SECONDS = 120


@dataclass
class Round:
    """A new hold queue of the minutes level, a new topic, and the puts that have returned."""

    number: int
    returned: dict[str, str] = field(default_factory=dict)
    """Queue of each job, by id."""
    enough: threading.Event = field(default_factory=threading.Event)

    @property
    def wanted(self) -> int:
        """Number of puts to return before the broker is killed."""
        return 1 + self.number % 4

    def put(self, client: Client, start: threading.Barrier) -> None:
        """Put two jobs, the first with the round's number as its delay in minutes."""
        minutes = 1 + self.number % 59
        topic = f"round{self.number}"
        start.wait()
        try:
            self._note(client.put(topic, delay=minutes * MINUTE_SECONDS).id, f"hold.{minutes}m")
            self._note(client.put(topic).id, f"ready.{topic}")
        except Exception as error:  # noqa: BLE001 - an unconfirmed put may be lost
            print(f"round {self.number}: {error!r:.100}", file=sys.stderr)

    def _note(self, job_id: str, queue: str) -> None:
        if not self.enough.is_set():
            self.returned[job_id] = queue
        if len(self.returned) >= self.wanted:
            self.enough.set()


def found(url: str, topology: Topology, queues: set[str]) -> set[str]:
    """Return the ids of the messages in these queues without removing them."""
    ids = set()
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        for queue in queues:
            channel = connection.channel()
            while True:
                method, properties, _ = channel.basic_get(topology.prefix + queue)
                if method is None or properties is None:
                    break
                ids.add(properties.message_id)
            channel.close()
    return ids


def run(broker: PrivateBroker, number: int, stabilise_seconds: float | None) -> int:
    """Run one round; return the number of lost puts."""
    # There are 59 hold queues of minutes, one per round.
    topology = Topology(f"kills{number // 59}")
    round_, start = Round(number), threading.Barrier(2)

    def client() -> Client:
        return Client(
            broker.url,
            namespace=topology.namespace,
            timeout=TIMEOUT_SECONDS,
            stabilise_seconds=stabilise_seconds,
        )

    with client() as one, client() as other:
        one.put("warm")  # creates the namespace
        other.put("warm")
        threads = [
            threading.Thread(target=round_.put, args=(putter, start)) for putter in (one, other)
        ]
        for thread in threads:
            thread.start()
        round_.enough.wait()
        broker.nodes[0].kill()
        returned = dict(round_.returned)
        broker.start()
        for thread in threads:
            thread.join()
    deadline = time.monotonic() + 20
    missing = set(returned)
    while missing and time.monotonic() < deadline:
        missing -= found(broker.url, topology, {returned[one] for one in missing})
        time.sleep(0.2)
    print(f"round {number}: {len(returned)} returned, {len(missing)} lost", flush=True)
    return len(missing)


def run_fresh() -> int:
    """Kill a broker right after its first put; return whether the put or the log is lost."""
    with PrivateBroker.temporary() as broker:
        topology = Topology("fresh" + secrets.token_hex(2))
        with Client(broker.url, namespace=topology.namespace) as client:
            job = client.put("t", delay=10 * MINUTE_SECONDS)
        broker.nodes[0].kill()
        broker.start()
        is_lost = job.id not in found(broker.url, topology, {"hold.10m"})
        with Client(broker.url, namespace=topology.namespace, timeout=60) as client:
            client.delete(client.put("t"))
    print(f"fresh broker: {'lost' if is_lost else 'not lost'}", flush=True)
    return int(is_lost)


def main() -> None:
    """Count the losses."""
    given = dict(enumerate(sys.argv))
    rounds, fresh = int(given.get(1, 20)), int(given.get(2, 3))
    stabilise_seconds = float(given[3]) if 3 in given else None
    with PrivateBroker.temporary() as broker:
        version = broker_version(broker)
        lost = sum(run(broker, number, stabilise_seconds) for number in range(rounds))
    lost_first = sum(run_fresh() for _ in range(fresh))
    print(f"RabbitMQ {version}: {lost} puts lost in {rounds} kills; {lost_first} of {fresh} firsts")


if __name__ == "__main__":
    main()
