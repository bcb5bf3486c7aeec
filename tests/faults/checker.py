"""Judges a history: which promises held, and how late and how often jobs arrived.

Pure: events in, a judgement out. What counts as a violation:

- lost: the put returned, no delete was ever called, no handler finished the job, and it was not
  found in a buried queue or in `unrouted` after the run either.
- early: a handler began before the time of the put call plus the delay, or before the time at which
  an attempt asked for a retry plus the delay that it asked for.
- deleted run: a job was handed out more than DELETE_BOUND_SECONDS after its delete had returned.
- parked: the job is left in a buried queue or in `unrouted`, though a worker for its topic ran.
- stalled: a process did nothing for STALL_SECONDS in which others of its role worked.
- standstill: no worker began a job for STANDSTILL_SECONDS in which no fault prevented it.

Doubled and late jobs are only counted, because the product does not promise against them.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from tests.faults.history import Event, Kind

DELETE_BOUND_SECONDS = 2.0
"""A job whose delete is older is not handed out (docs/guarantees.md, Delete)."""
LATE_SECONDS = 1.0
STALL_SECONDS = 60.0
"""Longer than any fault, plus the time to detect it and to reconnect."""
STANDSTILL_SECONDS = 15.0
"""Longer than clients need to reconnect: at most 3 s were seen, on a busy machine."""
STOPPING = {
    "kill-node",
    "kill-all-nodes",
    "stop-app",
    "freeze-node",
    "silence-connections",
    "cut-connections",
    "revoke-permissions",
}
"""Faults during which possibly no worker can begin a job."""
PERCENTILES = (50, 95, 99, 100)
START = "start"
"""The fault name for jobs that were due before the first fault."""


@dataclass(slots=True)
class JobHistory:
    """The events of one job."""

    put_at: float | None = None
    delay: float = 0.0
    is_confirmed: bool = False
    is_delete_called: bool = False
    deleted_at: float | None = None
    hung: int = 0
    delivered: list[tuple[float, int]] = field(default_factory=list)
    """The times at which handlers began, with their attempts."""
    handed_out: list[float] = field(default_factory=list)
    """The times at which the worker handed the job to those handlers."""
    retried: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By attempt: when it first asked for a retry, and after which delay."""
    finished: int = 0
    parked: str = ""
    """The place of the job after the run, and the reason."""

    @property
    def due(self) -> float | None:
        """The time before which no handler may begin."""
        return None if self.put_at is None else self.put_at + self.delay

    @property
    def is_missing(self) -> bool:
        """Whether the job should have been finished and was not."""
        return self.is_confirmed and not self.is_delete_called and not self.finished

    @property
    def is_deleted_in_time(self) -> bool:
        """Whether its delete returned so early that the job must not run at all."""
        return (
            self.deleted_at is not None
            and self.due is not None
            and self.deleted_at < self.due - DELETE_BOUND_SECONDS
        )

    @property
    def is_timed_out(self) -> bool:
        """Whether it was delivered again after a handler exceeded its TTR."""
        return bool(self.hung) and any(attempt > 1 for _, attempt in self.delivered)

    @property
    def doubles(self) -> int:
        """The number of deliveries that repeat an attempt delivered before."""
        return sum(
            count - 1 for count in Counter(attempt for _, attempt in self.delivered).values()
        )

    @property
    def lateness(self) -> float | None:
        """Time from the due time until the first handler began, in seconds."""
        if self.due is None or not self.delivered:
            return None
        return min(at for at, _ in self.delivered) - self.due

    def add(self, event: Event) -> None:
        """Add an event; the order of events does not matter."""
        match event.kind:
            case Kind.PUT:
                self.put_at, self.delay = event.at, event.delay
            case Kind.CONFIRMED:
                self.is_confirmed = True
            case Kind.DELETE:
                self.is_delete_called = True
            case Kind.DELETED:
                self.deleted_at = min(event.at, self.deleted_at or event.at)
            case Kind.DELIVERED:
                self.delivered.append((event.at, event.attempt))
                self.handed_out.append(event.at - event.delay)
            case Kind.RETRIED:
                asked = (event.at, event.delay)
                self.retried[event.attempt] = min(asked, self.retried.get(event.attempt, asked))
            case Kind.HUNG:
                self.hung += 1
            case Kind.FINISHED:
                self.finished += 1
            case Kind.PARKED:
                self.parked = event.detail or "somewhere"
            case _:
                pass

    def early_seconds(self) -> float:
        """Return how early the earliest delivery was, in seconds; 0 if none was early."""
        return max((self._earliest(attempt) - at for at, attempt in self.delivered), default=0.0)

    def deleted_run_seconds(self) -> float:
        """Return the seconds from its delete's return to its last hand-out; 0 if there was none."""
        if self.deleted_at is None:
            return 0.0
        return max((at - self.deleted_at for at in self.handed_out), default=0.0)

    def _earliest(self, attempt: int) -> float:
        if attempt > 1 and (asked := self.retried.get(attempt - 1)) is not None:
            return sum(asked)
        return self.due if self.due is not None else float("-inf")


@dataclass(frozen=True, slots=True)
class Violation:
    """One job for which a promise did not hold."""

    job: str
    seconds: float = 0.0
    """Seconds by which the job was early, or ran after its delete."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Lateness:
    """Lateness of a group of jobs, in seconds."""

    jobs: int
    late: int
    """Number of jobs that arrived more than LATE_SECONDS after their due time."""
    percentiles: dict[str, float]

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Self:
        """Return the figures of jobs with this lateness."""
        ordered = sorted(seconds)
        return cls(
            len(ordered),
            sum(one > LATE_SECONDS for one in ordered),
            {f"p{share}": percentile(ordered, share) for share in PERCENTILES},
        )


@dataclass(frozen=True, slots=True)
class Judgement:
    """The conclusions from a history."""

    puts: int
    confirmed: int
    unknown: int
    deletes: int
    deletes_in_time: int
    """Deletes that returned so long before the due time that the job must not run at all."""
    deletes_failed: int
    deliveries: int
    retries: int
    timeouts: int
    """Jobs that were delivered again because a handler exceeded their TTR."""
    faults: dict[str, int]
    effects: dict[str, int]
    """By fault, how often it was seen to have its intended effect."""
    lost: list[Violation]
    early: list[Violation]
    deleted_runs: list[Violation]
    parked: list[Violation]
    stalled: list[Violation]
    """Processes that did nothing while others of their role worked, with the durations."""
    standstill: float
    """The longest time in which no worker began a job without a fault as the cause, in seconds."""
    doubled: int
    lateness: Lateness
    lateness_by_fault: dict[str, Lateness]
    """By the last fault that began before the job was due."""
    slowest_calls: dict[str, float]
    """Durations of the slowest put and the slowest delete, in seconds."""
    delete_races: int
    """Jobs that ran after their delete returned, within the bound."""

    @property
    def is_good(self) -> bool:
        """Whether every promise held, under faults that had an effect."""
        found = (self.lost, self.early, self.deleted_runs, self.parked, self.stalled)
        return not (any(found) or self.without_effect or self.is_standstill)

    @property
    def is_standstill(self) -> bool:
        """Whether all workers stood still for too long."""
        return self.standstill > STANDSTILL_SECONDS

    @property
    def without_effect(self) -> list[str]:
        """Faults that were never seen to have their intended effect."""
        return [name for name in self.faults if not self.effects.get(name)]


def jobs_of(
    events: Iterable[Event], jobs: dict[str, JobHistory] | None = None
) -> dict[str, JobHistory]:
    """Return the history of each job; adds to `jobs` if given."""
    found = {} if jobs is None else jobs
    for event in events:
        if event.job:
            found.setdefault(event.job, JobHistory()).add(event)
    return found


def check(events: Sequence[Event]) -> Judgement:
    """Return the judgement on a whole history."""
    jobs = jobs_of(events)
    count = Counter(event.kind for event in events)
    deleted_runs = _violations(jobs, JobHistory.deleted_run_seconds)
    return Judgement(
        puts=count[Kind.PUT],
        confirmed=count[Kind.CONFIRMED],
        unknown=count[Kind.UNKNOWN],
        deletes=count[Kind.DELETED],
        deletes_in_time=sum(job.is_deleted_in_time for job in jobs.values()),
        deletes_failed=count[Kind.DELETE] - count[Kind.DELETED],
        deliveries=count[Kind.DELIVERED],
        retries=count[Kind.RETRIED],
        timeouts=sum(job.is_timed_out for job in jobs.values()),
        faults=_names(events, Kind.FAULT),
        effects=_names(events, Kind.EFFECT),
        lost=[Violation(name) for name, job in jobs.items() if job.is_missing and not job.parked],
        early=_violations(jobs, JobHistory.early_seconds),
        deleted_runs=[one for one in deleted_runs if one.seconds > DELETE_BOUND_SECONDS],
        parked=[
            Violation(name, detail=job.parked)
            for name, job in jobs.items()
            if job.is_missing and job.parked
        ],
        stalled=[one for one in idle_processes(events) if one.seconds > STALL_SECONDS],
        standstill=float(_standstill(events)),
        doubled=sum(job.doubles for job in jobs.values()),
        lateness=Lateness.of(_lateness(jobs.values())),
        lateness_by_fault=_lateness_by_fault(events, jobs.values()),
        slowest_calls={
            "put": _slowest(events, Kind.PUT, {Kind.CONFIRMED, Kind.UNKNOWN}),
            "delete": _slowest(events, Kind.DELETE, {Kind.DELETED}),
        },
        delete_races=sum(one.seconds <= DELETE_BOUND_SECONDS for one in deleted_runs),
    )


def idle_processes(events: Iterable[Event]) -> list[Violation]:
    """Return, for each process, the longest time that it did nothing while its peers worked.

    This counts whole seconds in which a peer wrote an event, from the process's first event to its
    last, or to its peers' last if it has no successor.
    """
    seconds: dict[str, set[int]] = {}
    for event in events:
        if event.job and event.by:
            seconds.setdefault(_member(event.by), set()).add(int(event.at))
    return [
        Violation(member, float(_longest_idle(own, _seconds_of_peers(seconds, member))))
        for member, own in seconds.items()
    ]


def _member(process: str) -> str:
    """Return the name that a process shares with its successors: worker-aio-0 of worker-aio-0.2."""
    return process.partition(".")[0]


def _seconds_of_peers(seconds: dict[str, set[int]], member: str) -> set[int]:
    role = member.partition("-")[0]
    peers = [some for name, some in seconds.items() if name != member and name.startswith(role)]
    return set().union(*peers)


def _longest_idle(own: set[int], peers: set[int]) -> int:
    """Return the most seconds of the peers between two seconds of its own, or after its last."""
    longest = run = 0
    for second in range(min(own), max(own | peers) + 1):
        run = 0 if second in own else run + (second in peers)
        longest = max(longest, run)
    return longest


def _standstill(events: Iterable[Event]) -> int:
    """Return the most seconds between two deliveries, without those of faults that stop workers.

    Only the time from the first fault to the end of the last one counts, because jobs become few
    after that.
    """
    delivered = {int(event.at) for event in events if event.kind is Kind.DELIVERED}
    stopped, faulty = _seconds_of_faults(events)
    longest = run = 0
    for second in range(min(faulty, default=0), max(faulty, default=0)):
        run = 0 if second in delivered else run + (second not in stopped)
        longest = max(longest, run)
    return longest


def _seconds_of_faults(events: Iterable[Event]) -> tuple[set[int], set[int]]:
    """Return the seconds of faults that stop workers, and the seconds of all faults."""
    stopped: set[int] = set()
    faulty: set[int] = set()
    began: dict[str, float] = {}
    for event in sorted(events, key=lambda event: event.at):
        if event.kind is Kind.FAULT:
            began[event.detail.split()[0]] = event.at
        elif event.kind is Kind.HEALED and event.detail in began:
            seconds = set(range(int(began[event.detail]), int(event.at) + 1))
            faulty |= seconds
            stopped |= seconds if event.detail in STOPPING else set()
    return stopped, faulty


def _names(events: Iterable[Event], kind: Kind) -> dict[str, int]:
    return dict(Counter(event.detail.split()[0] for event in events if event.kind is kind))


def _lateness(jobs: Iterable[JobHistory]) -> list[float]:
    return [job.lateness for job in jobs if job.lateness is not None]


def _lateness_by_fault(events: Iterable[Event], jobs: Iterable[JobHistory]) -> dict[str, Lateness]:
    began = sorted((e.at, e.detail.split()[0]) for e in events if e.kind is Kind.FAULT)
    times = [at for at, _ in began]
    names = [START, *(name for _, name in began)]
    grouped: dict[str, list[float]] = {}
    for job in jobs:
        if job.due is not None and job.lateness is not None:
            grouped.setdefault(names[bisect_right(times, job.due)], []).append(job.lateness)
    return {name: Lateness.of(seconds) for name, seconds in sorted(grouped.items())}


def _slowest(events: Iterable[Event], called: Kind, returned: set[Kind]) -> float:
    """Return the longest time between a call for a job and its return."""
    calls: dict[str, float] = {}
    slowest = 0.0
    for event in sorted(events, key=lambda event: event.at):
        if event.kind is called:
            calls[event.job] = event.at
        elif event.kind in returned and event.job in calls:
            slowest = max(slowest, event.at - calls[event.job])
    return slowest


def percentile(ordered: Sequence[float], share: int) -> float:
    """Return the value that `share` percent of the ordered values do not exceed; 0 if none."""
    if not ordered:
        return 0.0
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def _violations(
    jobs: dict[str, JobHistory], measure: Callable[[JobHistory], float]
) -> list[Violation]:
    measured = [Violation(name, measure(job)) for name, job in jobs.items()]
    return [one for one in measured if one.seconds > 0]
