"""Faults that break something for a while, and repair it.

No fault is meant to lose a job, so the checker excuses none: the queue that is deleted is the ready
queue of a topic without jobs in flight, and the streams hold no jobs.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar
from urllib.error import HTTPError, URLError

from rabbitdelay import Job
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.private_broker.node.server_node import ServerNode
from tests.faults.effects import answers
from tests.faults.fleet import RIGHT_CLOCK, Member
from tests.faults.history import HistoryWriter, Kind
from tests.faults.probe import Probe
from tests.faults.putter import RETRY_DELAYS, TOPICS
from tests.faults.worker import FRAGILE_TOPIC, SLOW_SECONDS, SLOW_TOPIC
from tests.support.brokers.management import Management
from tests.support.brokers.proxy import Proxy
from tests.support.patience import wait_until

Option = TypeVar("Option")
USER = "load"
CLOCK_STEPS = ("+2d", "-2d", "+1h", "-1h", "+5", "-5")
FRAGILE_DELAYS = (0.1, 1.0, 2.0)
HEAL_SECONDS = 60.0
CUT_SECONDS = 2.0
LOOK_SECONDS = 0.2
MOST_CUTS = 3
CLOCK_SECONDS = 1.25
"""Time after which a worker has the clock that it was given: see FAKETIME_CACHE_DURATION."""
FILL_SECONDS = 8.0
"""Time that workers need for the slow jobs that they are filled with."""
PROBE_COUNT = 20
PERMISSIONS = {"configure": ".*", "write": ".*", "read": ".*"}


@dataclass(frozen=True, slots=True)
class Step:
    """One fault of a plan."""

    name: str
    seconds: float
    """Duration of the fault."""
    choice: float
    """From 0 to 1: selects the node, process, connection or clock step that is affected."""
    calm_seconds: float
    """Time without faults after this one."""

    def pick(self, options: Sequence[Option]) -> Option:
        """Return the option that this step's choice selects."""
        return options[min(int(self.choice * len(options)), len(options) - 1)]


def plan(seed: int, names: list[str]) -> Iterator[Step]:
    """Yield faults without end; the same seed and names yield the same faults."""
    chosen = random.Random(seed)
    while True:
        for name in chosen.sample(names, len(names)):  # each once before any repeats
            yield Step(
                name, chosen.uniform(2, 15), chosen.random(), calm_seconds=chosen.uniform(2, 8)
            )


@dataclass
class Faults:
    """Breaks a broker, its connections and its clients."""

    broker: PrivateBroker
    namespace: str
    proxies: dict[str, list[Proxy]]
    """By role, putters or workers, one for each node."""
    workers: list[Member]
    putters: list[Member]
    history: HistoryWriter
    probe: Probe
    is_clock_fakeable: bool

    @property
    def by_name(self) -> dict[str, Callable[[Step], None]]:
        """Every fault that is possible here."""
        faults: dict[str, Callable[[Step], None]] = {
            "kill-node": self.kill_node,
            "kill-all-nodes": self.kill_all_nodes,
            "stop-app": self.stop_app,
            "freeze-node": self.freeze_node,
            "silence-connections": self.silence_connections,
            "cut-connections": self.cut_connections,
            "delete-ready-queue": self.delete_ready_queue,
            "delete-stream": self.delete_stream,
            "memory-alarm": self.memory_alarm,
            "revoke-permissions": self.revoke_permissions,
            "kill-worker": self.kill_worker,
            "kill-worker-in-alarm": self.kill_worker_in_alarm,
            "kill-putter": self.kill_putter,
        }
        if self.is_clock_fakeable:
            faults["step-clock"] = self.step_clock
        return faults

    def do(self, step: Step) -> None:
        """Inject the step's fault for its duration, and wait until the broker serves again."""
        self.history.write(Kind.FAULT, detail=f"{step.name} {step.seconds:.1f}s {step.choice:.2f}")
        self.by_name[step.name](step)
        self._wait_for_broker()
        self.history.write(Kind.HEALED, detail=step.name)

    def kill_node(self, step: Step) -> None:
        """Kill one node with SIGKILL, and start it again."""
        node = step.pick(self._nodes)
        node.kill()
        self._last(step, silent=[node.url])
        node.start()

    def kill_all_nodes(self, step: Step) -> None:
        """Kill all nodes with SIGKILL, and start them again."""
        self.broker.kill()
        self._last(step, silent=[node.url for node in self.broker.nodes])
        self.broker.start()

    def stop_app(self, step: Step) -> None:
        """Stop RabbitMQ on one node in an orderly way, and start it again."""
        node = step.pick(self._nodes)
        node.control("stop_app")
        try:
            self._last(step, silent=[node.url])
        finally:
            node.control("start_app")

    def freeze_node(self, step: Step) -> None:
        """Suspend the process of one node with SIGSTOP, and resume it."""
        node = step.pick(self._nodes)
        pid = node.pid
        assert pid is not None
        prefetched = self._fill_workers() if len(self._nodes) > 1 else []
        os.kill(pid, signal.SIGSTOP)
        try:
            self._delete_prefetched(step, prefetched)
            self._last(step, silent=[node.url])
        finally:
            os.kill(pid, signal.SIGCONT)

    def silence_connections(self, step: Step) -> None:
        """Drop the packets of all putters, of all workers, or of all of them.

        Jobs that wait in workers are deleted right after, and workers must not run them.
        """
        roles = step.pick([["putters"], ["workers"], ["putters", "workers"]])
        chosen = [proxy for role in roles for proxy in self.proxies[role]]
        prefetched = self._fill_workers() if "workers" in roles else []
        for proxy in chosen:
            proxy.silence()
        try:
            self._delete_prefetched(step, prefetched)
            self._last(step, silent=[proxy.url for proxy in chosen])
        finally:
            for proxy in chosen:
                proxy.restore()

    def cut_connections(self, step: Step) -> None:
        """Reset all connections, several times.

        The resets are too few for a job to be buried. The broker redelivers the jobs of a closed
        connection to the next one, before it notices that this one is closed too, and counts each
        delivery: up to 3 for each reset with 4 workers, and the delivery limit is 20.
        """
        for _ in range(1 + int(step.choice * MOST_CUTS)):
            self._saw(step, self._cut_all())
            time.sleep(CUT_SECONDS)

    def delete_ready_queue(self, step: Step) -> None:
        """Delete the ready queue of a topic without jobs, and put some jobs of that topic."""
        self._delete_queue(step, Topology(self.namespace).ready_queue(FRAGILE_TOPIC))
        time.sleep(step.choice)
        for delay in FRAGILE_DELAYS:
            self.probe.put(FRAGILE_TOPIC, {}, delay=delay)

    def delete_stream(self, step: Step) -> None:
        """Delete the log of deletes, or its snapshots, while workers run."""
        topology = Topology(self.namespace)
        self._delete_queue(step, step.pick([topology.tombstones, topology.snapshots]))
        time.sleep(step.seconds)

    def memory_alarm(self, step: Step) -> None:
        """Raise the memory alarm of one node, which blocks putters of the whole cluster."""
        with self._alarm(step):
            time.sleep(step.seconds)

    def kill_worker_in_alarm(self, step: Step) -> None:
        """Kill one worker with SIGKILL while an alarm prevents it from publishing retries."""
        with self._alarm(step):
            time.sleep(step.seconds)
            self.kill_worker(step)

    def revoke_permissions(self, step: Step) -> None:
        """Take one permission, or all, from the user of the load, and grant it again.

        The connections are reset, because a channel caches permissions for up to a minute.
        """
        taken = step.pick([["write"], ["read"], ["write", "read", "configure"]])
        self.grant(PERMISSIONS | dict.fromkeys(taken, "^$"))
        try:
            self._saw(step, self._cut_all())
            time.sleep(step.seconds)
        finally:
            self.grant(PERMISSIONS)

    def kill_worker(self, step: Step) -> None:
        """Kill one worker with SIGKILL, and start another."""
        self._replace(step, step.pick(self.workers))

    def kill_putter(self, step: Step) -> None:
        """Kill one putter with SIGKILL, and start another."""
        self._replace(step, step.pick(self.putters))

    def step_clock(self, step: Step) -> None:
        """Step the wall clock of one worker, or step it back if it is off, for good.

        Jobs that wait for a retry meanwhile are deleted, and their copies must not run. The worker
        records the effect.
        """
        clock = step.pick(self.workers).clock
        assert clock is not None
        is_right = clock.read_text() == RIGHT_CLOCK
        offset = CLOCK_STEPS[int(step.seconds * 1000) % len(CLOCK_STEPS)]
        clock.write_text(f"{offset}\n" if is_right else RIGHT_CLOCK)
        time.sleep(CLOCK_SECONDS)
        retried = self.probe.put_many(TOPICS[0], {"retry_delay": RETRY_DELAYS[-1]}, PROBE_COUNT)
        time.sleep(CLOCK_SECONDS)
        self.probe.delete_many(retried, timeout=step.seconds)

    def grant(self, permissions: dict[str, str]) -> None:
        """Set the permissions of the user of the load."""
        self._management.put(f"permissions/%2F/{USER}", permissions)

    @property
    def _nodes(self) -> list[ServerNode]:
        return [node for node in self.broker.nodes if isinstance(node, ServerNode)]

    @property
    def _management(self) -> Management:
        return Management(self.broker.management_url)

    @contextmanager
    def _alarm(self, step: Step) -> Iterator[None]:
        node = step.pick(self._nodes)
        node.control("set_vm_memory_high_watermark", "0.00001")
        try:
            yield
            self._saw(step, self._is_in_alarm())
        finally:
            node.control("set_vm_memory_high_watermark", "0.8")

    def _is_in_alarm(self) -> bool:
        """Whether an alarm is in effect; the list of nodes would show it seconds later."""
        try:
            self._management.get("health/checks/alarms")
        except HTTPError as error:
            error.close()
            return error.code == HTTPStatus.SERVICE_UNAVAILABLE
        return False

    def _replace(self, step: Step, member: Member) -> None:
        self._saw(step, member.is_running)
        member.kill()
        member.start()

    def _fill_workers(self) -> list[Job]:
        """Put slow jobs, and return those that wait in workers by now, one behind the other."""
        count = int(FILL_SECONDS / SLOW_SECONDS) * len(self.workers)
        jobs = self.probe.put_many(SLOW_TOPIC, {"seconds": SLOW_SECONDS}, count)
        time.sleep(SLOW_SECONDS)
        return jobs[len(self.workers) :]

    def _delete_prefetched(self, step: Step, jobs: list[Job]) -> None:
        if jobs and self.probe.delete_many(jobs, timeout=step.seconds):
            self.history.write(Kind.EFFECT, detail=f"delete-prefetched {len(jobs)}")

    def _last(self, step: Step, *, silent: list[str]) -> None:
        """Wait for the duration of a fault, and record its effect if these URLs do not answer.

        Checks repeatedly: on a busy machine even SIGSTOP takes effect only after a while.
        """
        end = time.monotonic() + step.seconds
        while any(answers(url) for url in silent) and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
        self._saw(step, sum(not answers(url) for url in silent))
        time.sleep(max(0.0, end - time.monotonic()))

    def _saw(self, step: Step, count: int) -> None:
        if count:
            self.history.write(Kind.EFFECT, detail=f"{step.name} {count:d}")

    def _cut_all(self) -> int:
        """Reset the connections of the load; return their number."""
        proxies = [proxy for some in self.proxies.values() for proxy in some]
        count = sum(proxy.connection_count for proxy in proxies)
        for proxy in proxies:
            proxy.cut()
        return count

    def _delete_queue(self, step: Step, name: str) -> None:
        self._saw(step, len(self._management.names("queues", name)))
        self._management.delete("queues", name)

    def _wait_for_broker(self) -> None:
        wait_until(self._is_serving, seconds=HEAL_SECONDS, what="the broker serves again")

    def _is_serving(self) -> bool:
        with suppress(URLError, OSError):
            nodes = self._management.get("nodes?columns=name,running")
            return len([node for node in nodes if node["running"]]) == len(self.broker.nodes)
        return False


@contextmanager
def proxies_for(broker: PrivateBroker, *roles: str) -> Iterator[dict[str, list[Proxy]]]:
    """Start a proxy for each role and node, which logs in as the user of the load."""
    management = Management(broker.management_url)
    management.put(f"users/{USER}", {"password": USER, "tags": ""})
    management.put(f"permissions/%2F/{USER}", PERMISSIONS)
    urls = [node.url.replace("guest:guest", f"{USER}:{USER}") for node in broker.nodes]
    proxies = {role: [Proxy(url) for url in urls] for role in roles}
    with ExitStack() as stack:
        for proxy in (one for some in proxies.values() for one in some):
            stack.enter_context(proxy)
        yield proxies
