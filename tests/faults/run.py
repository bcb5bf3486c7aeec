"""Runs a load under random faults for a given time, and judges its history.

python -m tests.faults.run --minutes 30 --seed 1 --nodes 3

The last line is the judgement. Exits with 0 for PASS, 1 for FAIL and 130 if it was interrupted.
"""

import argparse
import os
import secrets
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rabbitdelay import Client
from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.private_broker.installation.installation import require_installation
from tests.faults import report
from tests.faults.checker import check, jobs_of
from tests.faults.faults import Faults, Step, plan, proxies_for
from tests.faults.fleet import FAKETIME_LIBRARIES, Fleet, Member
from tests.faults.history import Event, HistoryReader, HistoryWriter, Kind
from tests.faults.parked import parked_jobs
from tests.faults.probe import Probe
from tests.support.brokers.proxy import Proxy
from tests.support.programs.script import ROOT

NAMESPACE = "faults"
FRONTS = ("sync", "aio")
WORKERS_PER_FRONT = 2
DRAIN_SECONDS = 240.0
"""Time from the last due time until a job that has not arrived counts as lost."""
QUIET_SECONDS = 5.0
"""Time from the last due time, for deleted jobs that must not arrive."""
START_SECONDS = 15.0
"""Time until the queues of the first puts survive a crash; see docs/guarantees.md."""
TICK_SECONDS = 2.0
PUTTER, WORKER = "tests.faults.putter", "tests.faults.worker"
NO_FAKETIME = "libfaketime is not installed (apt-get install faketime)"


class Watch:
    """Reads the history while it grows, replaces ended processes and prints the progress."""

    def __init__(self, folder: Path, fleet: Fleet) -> None:
        self.events: list[Event] = []
        self._jobs = jobs_of([])
        self._reader = HistoryReader(folder)
        self._fleet = fleet
        self._began = time.monotonic()

    @property
    def missing(self) -> set[str]:
        """Jobs that have yet to arrive."""
        return {name for name, job in self._jobs.items() if job.is_missing}

    @property
    def last_due(self) -> float:
        """The due time of the last job, deleted or not."""
        return max((job.due or 0.0 for job in self._jobs.values()), default=0.0)

    def read(self) -> None:
        """Read the events written since the last call."""
        events = self._reader.read()
        self.events += events
        jobs_of(events, self._jobs)

    def show(self, what: str) -> None:
        """Print a line of progress; on a terminal, replace the previous one."""
        self._fleet.replace_ended()
        self.read()
        clock = time.strftime("%M:%S", time.gmtime(time.monotonic() - self._began))
        line = f"{clock}  {len(self._jobs)} jobs, {len(self.missing)} to come: {what}"
        is_terminal = sys.stdout.isatty()
        start, end = ("\r\x1b[K", "") if is_terminal else ("", "\n")
        print(f"{start}{line}", end=end, flush=True)  # noqa: T201 - a program


class Interrupt:
    """Raises KeyboardInterrupt on the first signal to stop, and ignores later ones.

    The first signal stops the broker and all processes. A second one must not interrupt that.
    """

    def __init__(self) -> None:
        self.is_raised = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._stop)

    def _stop(self, _number: int, _frame: object) -> None:
        if not self.is_raised:
            self.is_raised = True
            raise KeyboardInterrupt


def main() -> int:
    """Run, report, and return the exit code."""
    options = _options()
    interrupt = Interrupt()
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-seed{options.seed}-{os.getpid()}"
    folder = ROOT / ".cache" / "faults" / name
    folder.mkdir(parents=True)
    _print(f"seed {options.seed}, nodes {options.nodes}; history and report in {folder}")
    fleet, interruption = Fleet([]), ""
    try:
        with (
            PrivateBroker.temporary(nodes=options.nodes) as broker,
            _load(broker, fleet, folder, options.seed) as faults,
        ):
            _run(Watch(folder, fleet), fleet, faults, options)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the report follows
        interruption = "interrupted" if interrupt.is_raised else f"{type(error).__name__}: {error}"
        if not interrupt.is_raised:
            traceback.print_exc()
    is_good = _report(folder, options, fleet, interruption)
    return 130 if interrupt.is_raised else int(not is_good)


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a program


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run a load under random faults.")
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="minutes of faults (default: 30)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=secrets.randbelow(1_000_000),
        help="seed of the plan of faults (default: random)",
    )
    parser.add_argument(
        "--nodes", type=int, choices=(1, 3), default=1, help="nodes of the broker (default: 1)"
    )
    parser.add_argument(
        "--faults",
        type=lambda text: text.split(","),
        default=[],
        help="names of the faults to inject, separated by commas (default: all)",
    )
    return parser.parse_args()


@contextmanager
def _load(broker: PrivateBroker, fleet: Fleet, folder: Path, seed: int) -> Iterator[Faults]:
    """Start all processes of the load; none outlives the block."""
    with (
        proxies_for(broker, "putters", "workers") as proxies,
        Client(",".join(n.url for n in broker.nodes), namespace=NAMESPACE, timeout=60) as client,
        fleet,
    ):
        fleet.members += _members(proxies, folder, seed)
        for member in fleet.members:
            member.start()
        history = HistoryWriter(folder, "faults")
        yield Faults(
            broker,
            NAMESPACE,
            proxies,
            fleet.of(WORKER),
            fleet.of(PUTTER),
            history,
            Probe(client, history),
            is_clock_fakeable=bool(FAKETIME_LIBRARIES),
        )


def _members(proxies: dict[str, list[Proxy]], folder: Path, seed: int) -> list[Member]:
    urls = {role: ",".join(proxy.url for proxy in some) for role, some in proxies.items()}
    members = []
    for front in FRONTS:
        putting = (front, urls["putters"], NAMESPACE, str(folder), str(seed))
        members.append(Member(PUTTER, putting, folder, f"putter-{front}"))
        for number in range(WORKERS_PER_FRONT):
            name = f"worker-{front}-{number}"
            clock = folder / f"{name}.clock" if FAKETIME_LIBRARIES else None
            working = (front, urls["workers"], NAMESPACE, str(folder))
            members.append(Member(WORKER, working, folder, name, clock))
    return members


def _run(watch: Watch, fleet: Fleet, faults: Faults, options: argparse.Namespace) -> None:
    end = time.monotonic() + options.minutes * 60
    _wait(watch, START_SECONDS, "starting")
    for step in plan(options.seed, _chosen(faults, options.faults)):
        if time.monotonic() > end:
            break
        _do(watch, faults, step)
    _drain(watch, fleet)
    parked = parked_jobs(faults.broker, NAMESPACE)
    for name in watch.missing.intersection(parked):
        faults.history.write(Kind.PARKED, name, detail=parked[name])


def _chosen(faults: Faults, names: list[str]) -> list[str]:
    """Return the names of the faults to inject: all possible ones, or only the requested ones."""
    if unknown := set(names) - set(faults.by_name):
        possible = ", ".join(faults.by_name)
        raise ValueError(f"unknown faults: {', '.join(sorted(unknown))}; use some of {possible}")
    return names or list(faults.by_name)


def _do(watch: Watch, faults: Faults, step: Step) -> None:
    watch.show(f"{step.name} for {step.seconds:.0f} s")
    faults.do(step)
    _wait(watch, step.calm_seconds, "calm")


def _wait(watch: Watch, seconds: float, what: str) -> None:
    time.sleep(seconds)
    watch.show(what)


def _drain(watch: Watch, fleet: Fleet) -> None:
    """Stop the putters, wait until every job has arrived or is overdue, stop the workers."""
    fleet.stop(PUTTER)
    watch.read()
    while time.monotonic() < watch.last_due + QUIET_SECONDS or (
        watch.missing and time.monotonic() < watch.last_due + DRAIN_SECONDS
    ):
        _wait(watch, TICK_SECONDS, "draining")
    fleet.stop(WORKER)
    watch.read()


def _report(folder: Path, options: argparse.Namespace, fleet: Fleet, interruption: str) -> bool:
    """Write and print the report, and return whether the run was good."""
    members = fleet.members + fleet.ended
    run = report.Run(
        rabbitmq=require_installation().version,
        nodes=options.nodes,
        minutes=options.minutes,
        seed=options.seed,
        skipped={} if FAKETIME_LIBRARIES else {"step-clock": NO_FAKETIME},
        unexpected_ends={m.name: m.unexpected_ends for m in members if m.unexpected_ends},
        interruption=interruption,
    )
    judgement = check(HistoryReader(folder).read())
    _print(f"\n{report.write(folder, run, judgement)}".rstrip())
    return report.is_good(run, judgement)


if __name__ == "__main__":
    sys.exit(main())
