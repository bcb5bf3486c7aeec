"""The requests with JSON bodies, apart from those that put jobs."""

from pydantic import Field, StrictBool, StrictInt, StrictStr

from rabbitdelay.gateway.bodies.fields import Delay, JobId, Lease, Request, Topic, Topics, Wait
from rabbitdelay.gateway.problems import InvalidRequest

MAX_JOBS_AT_ONCE = 1_000
"""Maximum number of jobs in the answer to one pop."""
MAX_IDS = 10_000
"""Maximum number of ids in one request: the gateway serves no other client while it reads them."""
MAX_LEASES = MAX_JOBS_AT_ONCE
"""Maximum number of leases in one request. Each may take a question to another gateway."""
MAX_LISTED = 1_000
MAX_LISTED_WITH_BODIES = 100


class DeleteRequest(Request):
    """Ids of the jobs to delete."""

    ids: list[JobId] = Field(
        max_length=MAX_IDS, description="Ids of any jobs, whatever their state."
    )


class PopRequest(Request):
    """A request for jobs."""

    topics: Topics = Field(description="One topic or several, which have the same priority.")
    max: StrictInt = Field(
        1, ge=1, le=MAX_JOBS_AT_ONCE, description="Maximum number of jobs in the answer."
    )
    wait: Wait = Field(
        0,
        description="Longest wait for the first job. The gateway limits it.",
        validate_default=True,
    )


class LeaseRequest(Request):
    """The lease of one job."""

    lease: Lease


class FinishRequest(Request):
    """The lease of the job that is done, or the leases of several."""

    lease: Lease | None = None
    leases: list[Lease] | None = Field(None, max_length=MAX_LEASES)

    def all(self) -> list[str]:
        """Return the leases; raise InvalidRequest unless exactly one member is given."""
        if (self.lease is None) == (self.leases is None):
            raise InvalidRequest("give either lease or leases")
        return [self.lease] if self.lease is not None else self.leases or []


class ReleaseRequest(LeaseRequest):
    """The lease of a job to release."""

    delay: Delay | None = Field(
        None, description="Delay before the next attempt. Default: the backoff of the job."
    )


class BuryRequest(LeaseRequest):
    """The lease of a job to bury."""

    reason: StrictStr = Field(
        "buried over HTTP", description="Why, for the person who looks at the job."
    )


class ChoiceRequest(Request):
    """Which of the parked jobs: those with certain ids, or all."""

    ids: list[JobId] | None = Field(None, max_length=MAX_IDS)
    all: StrictBool = Field(False, description="All jobs, instead of `ids`.")  # noqa: FBT003
    limit: StrictInt | None = Field(None, ge=1, description="Maximum number of jobs.")

    def chosen(self) -> list[str] | None:
        """Return the ids, or None for all; raise InvalidRequest unless one of both is given."""
        if self.all == (self.ids is not None):
            raise InvalidRequest("give either ids or all: true")
        return self.ids


class UnroutedChoiceRequest(ChoiceRequest):
    """Which of the unrouted jobs."""

    topic: Topic | None = Field(None, description="Only jobs of this topic.")


class ListQuery(Request):
    """Which parked jobs to list."""

    limit: int = Field(100, ge=1, le=MAX_LISTED, description="Maximum number of jobs.")
    id: JobId | None = Field(None, description="Only jobs with this id.")
    bodies: bool = Field(
        False,  # noqa: FBT003 - the default of a parameter
        description=f"Whether to include bodies, of at most {MAX_LISTED_WITH_BODIES} jobs.",
    )

    @property
    def most(self) -> int:
        """Maximum number of jobs to list."""
        return min(self.limit, MAX_LISTED_WITH_BODIES) if self.bodies else self.limit


class UnroutedListQuery(ListQuery):
    """Which unrouted jobs to list."""

    topic: Topic | None = Field(None, description="Only jobs of this topic.")


class WaitQuery(Request):
    """How long to wait for a response."""

    wait: Wait = Field(
        0,
        description="Longest wait. The gateway limits it.",
        validate_default=True,
    )


class TopicsQuery(Request):
    """Query parameters that select the counts."""

    delayed: bool = Field(
        False,  # noqa: FBT003 - the default of a parameter
        description="Whether to count the delayed jobs, too.",
    )
