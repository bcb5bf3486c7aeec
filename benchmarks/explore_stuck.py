"""Find out what releases dead letters that are stuck after coming due while the broker was down.

Not part of `make bench`: run `python -m benchmarks.explore_stuck --rounds 3 --queues all
--try-all`. Each round puts jobs into crash-safe queues, stops the broker cleanly, lets all jobs
come due, starts the broker, and counts the jobs that are ready after 12 s. The broker's
`dead_letter_worker_publisher_confirm_timeout` is RabbitMQ's default of 180 s unless `--retry-ms`
is given. With `--try-all`, each round with stuck jobs tries every action available to a client, one
after the other.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.request import Request, urlopen

import pika
from pika.adapters.blocking_connection import BlockingChannel

from benchmarks.measuring import broker_version
from rabbitdelay import Client
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.private_broker.installation import configuration
from rabbitdelay.private_broker.node.readiness import management

DEFAULT_RETRY_MS = 180_000
JOBS = 100
DELAYS = (8.0, 14.0)
WATCH_SECONDS = 12.0
TRIAL_SECONDS = 6.0
TOPIC = "t"
_BASIC = "Basic Z3Vlc3Q6Z3Vlc3Q="  # guest:guest


@dataclass(frozen=True, slots=True)
class Setting:
    """The broker and the namespace of a round."""

    broker: PrivateBroker
    topology: Topology

    @contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        """Yield a channel on its own connection."""
        with pika.BlockingConnection(pika.URLParameters(self.broker.url)) as connection:
            yield connection.channel()

    def ready(self) -> int:
        """Return the number of jobs in the ready queue and in `unrouted`."""
        with self.channel() as channel:
            names = (self.topology.ready_queue(TOPIC), self.topology.unrouted)
            answers = [channel.queue_declare(name, passive=True) for name in names]
            return sum(answer.method.message_count or 0 for answer in answers)

    def stuck_queues(self) -> dict[str, int]:
        """Return the number of dead letters in each hold queue that has any."""
        port = self.broker.nodes[0].layout.management_port
        queues = management(port).get("queues?columns=name,messages_dlx")
        return {
            queue["name"]: queue["messages_dlx"] for queue in queues if queue.get("messages_dlx")
        }

    def management(self, method: str, path: str, body: object = None) -> None:
        """Call the management API."""
        url = self.broker.management_url.rstrip("/") + path
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": _BASIC, "Content-Type": "application/json"}
        with urlopen(Request(url, data, headers, method=method)) as response:  # noqa: S310
            response.read()

    def watch(self, expected: int, seconds: float) -> float | None:
        """Wait until all jobs are ready; return the seconds, or None after the timeout."""
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            if self.ready() >= expected:
                return time.monotonic() - began
            time.sleep(0.1)
        return None


# Actions of a client


def get_and_consume(setting: Setting) -> None:
    """Get from and consume every queue with stuck jobs."""
    with setting.channel() as channel:
        for name in setting.stuck_queues():
            channel.basic_get(name)
            tag = channel.basic_consume(name, lambda *_: None)
            channel.basic_cancel(tag)


def bind_and_unbind(setting: Setting) -> None:
    """Add and remove a binding of every exchange that hold queues dead-letter to."""
    with setting.channel() as channel:
        for index in range(ladder.READY_INDEX + 1):
            where = (setting.topology.unrouted, setting.topology.level_exchange(index), "nudge")
            channel.queue_bind(*where)
            channel.queue_unbind(*where)


def declare_again(setting: Setting) -> None:
    """Redeclare every hold queue and topic, as any client may."""
    apply(setting.broker, setting.topology, ladder.EVERY_HOP)


def put_behind(setting: Setting) -> None:
    """Put a job through every queue with stuck jobs, so that each queue dead-letters again."""
    labels = [name.rpartition(".")[2] for name in setting.stuck_queues()]
    with setting.channel() as channel:
        channel.confirm_delivery()
        for label in labels:
            exchange = f"{setting.topology.prefix}hold.{label}"
            key = next(hop for hop in ladder.EVERY_HOP if hop.label == label)
            digits = [0] * ladder.READY_INDEX
            digits[key.level.index] = key.digit
            routing_key = ".".join(map(str, digits)) + f".{TOPIC}"
            channel.basic_publish(exchange, routing_key, b"nudge")


def rebalance(setting: Setting) -> None:
    """Rebalance the queue leaders, as an administrator may with the management API."""
    setting.management("POST", "/api/rebalance/queues")


def touch_policies(setting: Setting) -> None:
    """Add and remove a policy without effect, as a policymaker may."""
    path = "/api/policies/%2F/nudge"
    rule = {"pattern": f"^{setting.topology.namespace}\\.", "apply-to": "queues"}
    setting.management("PUT", path, rule | {"definition": {"queue-leader-locator": "balanced"}})
    time.sleep(1.0)
    setting.management("DELETE", path)


TRIALS: tuple[tuple[Callable[[Setting], None], float], ...] = (
    (get_and_consume, TRIAL_SECONDS),
    (bind_and_unbind, TRIAL_SECONDS),
    (declare_again, TRIAL_SECONDS),
    (put_behind, DELAYS[1] + TRIAL_SECONDS),
    (rebalance, TRIAL_SECONDS),
    (touch_policies, TRIAL_SECONDS),
)


# Rounds


CHOICES: dict[str, tuple[ladder.Hop, ...]] = {
    "all": ladder.EVERY_HOP,
    "minute": tuple(hop for hop in ladder.EVERY_HOP if hop.hold_ms < ladder.MINUTE_MS),
    "needed": (),
}
"""Hold queues declared in advance; puts declare the ones that they need."""


def apply(broker: PrivateBroker, topology: Topology, hops: Iterable[ladder.Hop]) -> None:
    """Declare the namespace with these hold queues."""
    delays = [timedelta(milliseconds=hop.hold_ms) for hop in hops]
    Client(broker.url, namespace=topology.namespace).topology.apply(topics=TOPIC, delays=delays)


def put_jobs(setting: Setting) -> float:
    """Put the jobs; return the due time of the last one."""
    delays = [round(random.uniform(*DELAYS), 2) for _ in range(JOBS)]
    with Client(setting.broker.url, namespace=setting.topology.namespace, timeout=120) as client:
        puts = [client.put_nowait(TOPIC, delay=delay) for delay in delays]
        jobs = [put.result() for put in puts]
    return max(job.due_ms for job in jobs) / 1000


def warm_up(setting: Setting) -> None:
    """Declare missing hold queues that the jobs need."""
    with Client(setting.broker.url, namespace=setting.topology.namespace, timeout=300) as client:
        puts = [client.put_nowait(TOPIC, delay=8 + step / 100) for step in range(600)]
        for put in puts:
            put.result()


def restart(setting: Setting, *, kill: bool) -> None:
    """Put jobs, stop the broker, let all jobs come due, and start the broker."""
    with setting.channel() as channel:
        channel.queue_purge(setting.topology.ready_queue(TOPIC))
        channel.queue_purge(setting.topology.unrouted)
    due = put_jobs(setting)
    setting.broker.kill() if kill else setting.broker.stop()
    time.sleep(max(0.0, due + 1 - time.time()))
    setting.broker.start()


def try_all(setting: Setting) -> dict[str, str]:
    """Return the effect of each action, and when the broker released the rest by itself."""
    found: dict[str, str] = {}
    expected = JOBS
    for trial, seconds in TRIALS:
        before, nudges = setting.ready(), len(setting.stuck_queues())
        if before >= expected:
            break
        trial(setting)
        expected += nudges if trial is put_behind else 0
        setting.watch(expected, seconds)
        found[trial.__name__] = f"{before} -> {setting.ready()} of {expected}"
    took = setting.watch(expected, 200.0)
    found["waiting"] = "never" if took is None else f"{took:.0f} s more"
    return found


def round_of(setting: Setting, *, kill: bool, trials: bool) -> dict[str, Any]:
    """Return the results of one restart."""
    restart(setting, kill=kill)
    took = setting.watch(JOBS, WATCH_SECONDS)
    if took is not None:
        return {"ready after s": round(took, 1)}
    missing = JOBS - setting.ready()
    result: dict[str, Any] = {"stuck jobs": missing, "queues": len(setting.stuck_queues())}
    return result | (try_all(setting) if trials else {})


def main() -> None:
    """Run the rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queues", choices=list(CHOICES), default="all")
    parser.add_argument("--retry-ms", type=int, default=DEFAULT_RETRY_MS)
    parser.add_argument("--kill", action="store_true", help="kill -9 instead of an orderly stop")
    parser.add_argument("--try-all", action="store_true")
    chosen = parser.parse_args()
    configuration.DEAD_LETTER_RETRY_MS = chosen.retry_ms
    with PrivateBroker.temporary() as broker:
        setting = Setting(broker, Topology("stuck"))
        apply(broker, setting.topology, CHOICES[chosen.queues])
        warm_up(setting)
        time.sleep(DELAYS[1] + 3)
        print(f"RabbitMQ {broker_version(broker)}, {vars(chosen)}", flush=True)
        for number in range(chosen.rounds):
            found = round_of(setting, kill=chosen.kill, trials=chosen.try_all)
            print(number, json.dumps(found), flush=True)
            if "stuck jobs" in found and not chosen.try_all:
                setting.watch(JOBS, 200.0)


if __name__ == "__main__":
    main()
