"""Judges a history: which promises held, and how late and how often jobs came.

Pure: events in, a verdict out. What counts as a violation:

- lost: the put returned, no delete was ever called, no handler finished the job, and it was not
  found in a buried queue or in `unrouted` after the run either.
- early: a handler began before the put was called plus the delay, or before an attempt asked to be
  retried plus the delay that it asked for.
- deleted run: a handler began more than DELETE_BOUND_SECONDS after the delete had returned
  (docs/guarantees.md, Delete).

Doubled, late and parked jobs are counted. No promise of the product is against them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tests.faults.history import Event, Kind

DELETE_BOUND_SECONDS = 2.0
LATE_SECONDS = 1.0
PERCENTILES = (50, 95, 99, 100)


@dataclass(slots=True)
class JobHistory:
    """All that happened to one job."""

    put_at: float | None = None
    delay: float = 0.0
    is_confirmed: bool = False
    is_delete_called: bool = False
    deleted_at: float | None = None
    delivered: list[tuple[float, int]] = field(default_factory=list)
    """When a handler began, and which attempt."""
    retried: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By attempt, when it first asked to be retried, and after how long."""
    finished: int = 0
    is_parked: bool = False

    @property
    def due(self) -> float | None:
        """The moment before which no handler may begin."""
        return None if self.put_at is None else self.put_at + self.delay

    @property
    def is_missing(self) -> bool:
        """Whether the job should have been finished, and was not."""
        return self.is_confirmed and not self.is_delete_called and not self.finished

    @property
    def doubles(self) -> int:
        """How many deliveries repeat an attempt that was delivered before."""
        return sum(
            count - 1 for count in Counter(attempt for _, attempt in self.delivered).values()
        )

    @property
    def lateness(self) -> float | None:
        """How long after the due time the first handler began, in seconds."""
        if self.due is None or not self.delivered:
            return None
        return min(at for at, _ in self.delivered) - self.due

    def add(self, event: Event) -> None:
        """Add what happened; the order of events does not matter."""
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
            case Kind.RETRIED:
                known = self.retried.get(event.attempt)
                if known is None or event.at < known[0]:
                    self.retried[event.attempt] = (event.at, event.delay)
            case Kind.FINISHED:
                self.finished += 1
            case Kind.PARKED:
                self.is_parked = True
            case _:
                pass

    def early_seconds(self) -> float:
        """Return by how much the earliest delivery was too early; 0 if none was."""
        return max((self._earliest(attempt) - at for at, attempt in self.delivered), default=0.0)

    def deleted_run_seconds(self) -> float:
        """Return how long after its delete had returned a handler began; 0 if none did."""
        if self.deleted_at is None:
            return 0.0
        return max((at - self.deleted_at for at, _ in self.delivered), default=0.0)

    def _earliest(self, attempt: int) -> float:
        if attempt > 1 and (asked := self.retried.get(attempt - 1)) is not None:
            return sum(asked)
        return self.due if self.due is not None else float("-inf")


@dataclass(frozen=True, slots=True)
class Violation:
    """One job for which a promise did not hold."""

    job: str
    seconds: float = 0.0
    """How early a job was, or how long after its delete it ran."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a history shows."""

    puts: int
    confirmed: int
    unknown: int
    deletes: int
    deliveries: int
    retries: int
    faults: dict[str, int]
    lost: list[Violation]
    early: list[Violation]
    deleted_runs: list[Violation]
    parked: list[str]
    doubled: int
    late: int
    lateness: dict[str, float]
    """Percentiles of lateness, in seconds."""
    delete_races: int
    """Jobs that ran after their delete had returned, within the bound."""

    @property
    def is_good(self) -> bool:
        """Whether every promise held."""
        return not (self.lost or self.early or self.deleted_runs)


def jobs_of(
    events: Iterable[Event], jobs: dict[str, JobHistory] | None = None
) -> dict[str, JobHistory]:
    """Return the history of each job; adds to `jobs` if given."""
    found = {} if jobs is None else jobs
    for event in events:
        if event.job:
            found.setdefault(event.job, JobHistory()).add(event)
    return found


def check(events: Sequence[Event]) -> Verdict:
    """Return what a whole history shows."""
    jobs = jobs_of(events)
    count = Counter(event.kind for event in events)
    deleted_runs = _violations(jobs, JobHistory.deleted_run_seconds)
    lateness = sorted(one.lateness for one in jobs.values() if one.lateness is not None)
    return Verdict(
        puts=count[Kind.PUT],
        confirmed=count[Kind.CONFIRMED],
        unknown=count[Kind.UNKNOWN],
        deletes=count[Kind.DELETED],
        deliveries=count[Kind.DELIVERED],
        retries=count[Kind.RETRIED],
        faults=dict(Counter(e.detail.split()[0] for e in events if e.kind is Kind.FAULT)),
        lost=[
            Violation(name) for name, job in jobs.items() if job.is_missing and not job.is_parked
        ],
        early=_violations(jobs, JobHistory.early_seconds),
        deleted_runs=[one for one in deleted_runs if one.seconds > DELETE_BOUND_SECONDS],
        parked=[name for name, job in jobs.items() if job.is_missing and job.is_parked],
        doubled=sum(job.doubles for job in jobs.values()),
        late=sum(seconds > LATE_SECONDS for seconds in lateness),
        lateness={f"p{share}": percentile(lateness, share) for share in PERCENTILES},
        delete_races=sum(one.seconds <= DELETE_BOUND_SECONDS for one in deleted_runs),
    )


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
