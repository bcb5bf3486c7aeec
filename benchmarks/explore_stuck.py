"""Stuck dead letters: what brings jobs on that came due while the broker was down?

Not run by `make bench`: `python -m benchmarks.explore_stuck --rounds 3 --queues all --try-all`.
Each round puts jobs into settled queues, stops the broker in good order, lets all of them come
due, starts the broker, and counts the jobs that are ready after 12 s. The broker's
`dead_letter_worker_publisher_confirm_timeout` is RabbitMQ's default of 180 s, unless
`--retry-ms` sets another. With `--try-all` everything that a client can do is tried, one after
the other, on each round that has stuck jobs.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

import pika
from pika.adapters.blocking_connection import BlockingChannel

from benchmarks.measuring import broker_version
from rabbitdelay import Client
from rabbitdelay.address import parse_all
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.setup import setup
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.private_broker import PrivateBroker, configuration
from rabbitdelay.private_broker.readiness import management_get
from rabbitdelay.sync.administration import Administrator
from rabbitdelay.sync.blocking import connected

DEFAULT_RETRY_MS = 180_000
JOBS = 100
DELAYS = (8.0, 14.0)
WATCH_SECONDS = 12.0
TRIAL_SECONDS = 6.0
TOPIC = "t"
_BASIC = "Basic Z3Vlc3Q6Z3Vlc3Q="  # guest:guest


@dataclass(frozen=True, slots=True)
class Stage:
    """A broker and the namespace that a round uses."""

    broker: PrivateBroker
    topology: Topology

    @contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        """Yield a channel of a connection of its own."""
        with pika.BlockingConnection(pika.URLParameters(self.broker.url)) as connection:
            yield connection.channel()

    def ready(self) -> int:
        """Return the number of jobs in the ready queue and in `unrouted`."""
        with self.channel() as channel:
            names = (self.topology.ready_queue(TOPIC), self.topology.unrouted)
            answers = [channel.queue_declare(name, passive=True) for name in names]
            return sum(answer.method.message_count or 0 for answer in answers)

    def stuck_queues(self) -> dict[str, int]:
        """Return the queues that hold dead letters, with their number."""
        port = self.broker.nodes[0].layout.management_port
        queues = management_get(port, "/api/queues?columns=name,messages_dlx") or []
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
        """Wait until all jobs are ready; return how long that took, or None."""
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            if self.ready() >= expected:
                return time.monotonic() - began
            time.sleep(0.1)
        return None


# What a client can do


def get_and_consume(stage: Stage) -> None:
    """Get from, and consume, every queue with stuck jobs."""
    with stage.channel() as channel:
        for name in stage.stuck_queues():
            channel.basic_get(name)
            tag = channel.basic_consume(name, lambda *_: None)
            channel.basic_cancel(tag)


def bind_and_unbind(stage: Stage) -> None:
    """Add and remove a binding of every exchange that hold queues dead-letter to."""
    with stage.channel() as channel:
        for index in range(ladder.READY_INDEX + 1):
            where = (stage.topology.unrouted, stage.topology.level_exchange(index), "nudge")
            channel.queue_bind(*where)
            channel.queue_unbind(*where)


def declare_again(stage: Stage) -> None:
    """Declare every hold queue and topic again, as any client may."""
    apply(stage.broker, stage.topology, ladder.EVERY_HOP)


def put_behind(stage: Stage) -> None:
    """Put a job through every queue with stuck jobs, so that each dead-letters once more."""
    labels = [name.rpartition(".")[2] for name in stage.stuck_queues()]
    with stage.channel() as channel:
        channel.confirm_delivery()
        for label in labels:
            exchange = f"{stage.topology.prefix}hold.{label}"
            key = next(hop for hop in ladder.EVERY_HOP if hop.label == label)
            digits = [0] * ladder.READY_INDEX
            digits[key.level.index] = key.digit
            routing_key = ".".join(map(str, digits)) + f".{TOPIC}"
            channel.basic_publish(exchange, routing_key, b"nudge")


def rebalance(stage: Stage) -> None:
    """Ask for new leaders, as an administrator of the management API may."""
    stage.management("POST", "/api/rebalance/queues")


def touch_policies(stage: Stage) -> None:
    """Add a policy without effect and remove it, as a policymaker may."""
    path = "/api/policies/%2F/nudge"
    rule = {"pattern": f"^{stage.topology.namespace}\\.", "apply-to": "queues"}
    stage.management("PUT", path, rule | {"definition": {"queue-leader-locator": "balanced"}})
    time.sleep(1.0)
    stage.management("DELETE", path)


TRIALS: tuple[tuple[Callable[[Stage], None], float], ...] = (
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
"""The hold queues that are made ahead; puts make those that they need."""


def apply(broker: PrivateBroker, topology: Topology, hops: Iterable[ladder.Hop]) -> None:
    """Make the namespace with these hold queues."""
    parts = (*map(topology.hold, hops), *topology.topic(TOPIC))
    with connected(parse_all(broker.url)) as connection:
        administrator = Administrator(connection)
        if administrator.set_up(setup(topology, parts, with_base=True, may_declare=True)):
            administrator.settle()


def put_jobs(stage: Stage) -> float:
    """Put the jobs; return when the last is due."""
    delays = [round(random.uniform(*DELAYS), 2) for _ in range(JOBS)]
    with Client(stage.broker.url, namespace=stage.topology.namespace, timeout=120) as client:
        puts = [client.put_nowait(TOPIC, delay=delay) for delay in delays]
        jobs = [put.result() for put in puts]
    return max(job.due_ms for job in jobs) / 1000


def warm_up(stage: Stage) -> None:
    """Make the hold queues that the jobs need, where not all exist."""
    with Client(stage.broker.url, namespace=stage.topology.namespace, timeout=300) as client:
        puts = [client.put_nowait(TOPIC, delay=8 + step / 100) for step in range(600)]
        for put in puts:
            put.result()


def restart(stage: Stage, *, kill: bool) -> None:
    """Put jobs, stop the broker, let all come due, and start it."""
    with stage.channel() as channel:
        channel.queue_purge(stage.topology.ready_queue(TOPIC))
        channel.queue_purge(stage.topology.unrouted)
    due = put_jobs(stage)
    stage.broker.kill() if kill else stage.broker.stop()
    time.sleep(max(0.0, due + 1 - time.time()))
    stage.broker.start()


def try_all(stage: Stage) -> dict[str, str]:
    """Return what each trial brought on, and when the broker itself did the rest."""
    found: dict[str, str] = {}
    expected = JOBS
    for trial, seconds in TRIALS:
        before, nudges = stage.ready(), len(stage.stuck_queues())
        if before >= expected:
            break
        trial(stage)
        expected += nudges if trial is put_behind else 0
        stage.watch(expected, seconds)
        found[trial.__name__] = f"{before} -> {stage.ready()} of {expected}"
    took = stage.watch(expected, 200.0)
    found["waiting"] = "never" if took is None else f"{took:.0f} s more"
    return found


def round_of(stage: Stage, *, kill: bool, trials: bool) -> dict[str, Any]:
    """Return what one restart showed."""
    restart(stage, kill=kill)
    took = stage.watch(JOBS, WATCH_SECONDS)
    if took is not None:
        return {"ready after s": round(took, 1)}
    missing = JOBS - stage.ready()
    result: dict[str, Any] = {"stuck jobs": missing, "queues": len(stage.stuck_queues())}
    return result | (try_all(stage) if trials else {})


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
        stage = Stage(broker, Topology("stuck"))
        apply(broker, stage.topology, CHOICES[chosen.queues])
        warm_up(stage)
        time.sleep(DELAYS[1] + 3)
        print(f"RabbitMQ {broker_version(broker)}, {vars(chosen)}", flush=True)
        for number in range(chosen.rounds):
            found = round_of(stage, kill=chosen.kill, trials=chosen.try_all)
            print(number, json.dumps(found), flush=True)
            if "stuck jobs" in found and not chosen.try_all:
                stage.watch(JOBS, 200.0)


if __name__ == "__main__":
    main()
