"""The members of every answer, for the OpenAPI document and for the tests of the answers."""

from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """An answer in JSON."""

    model_config = ConfigDict(extra="forbid")


class PutAnswer(Answer):
    """A job that the broker has stored."""

    id: str
    topic: str
    put: AwareDatetime = Field(description="Time of the put, by the clock of the gateway.")
    due: AwareDatetime = Field(description="Time at which the job is due.")


class PutManyAnswer(Answer):
    """The jobs that the broker has stored, in the order of the request."""

    jobs: list[PutAnswer]


class WithBody(Answer):
    """A body, in the member that suits its content type."""

    content_type: str
    body: Any = Field(
        None, description="The body as it was put, if it is JSON; a string, if it is text."
    )
    body_base64: str | None = Field(
        None, description="The body in base64, instead of `body`, if it is neither JSON nor text."
    )


class HeldJobAnswer(WithBody):
    """A job that is reserved for the client until its ttr is over."""

    lease: str = Field(description="Names the reservation, to finish, release, touch or bury it.")
    topic: str
    id: str
    attempt: int = Field(description="Number of this attempt, from 1.")
    max_attempts: int | None = Field(description="Number of attempts before the job is buried.")
    put: AwareDatetime
    due: AwareDatetime
    ttr: float = Field(description="Time to run, in seconds.")
    time_left: float = Field(description="Seconds until the reservation ends.")
    redeliveries: int = Field(description="Number of earlier deliveries, as the broker counts.")
    callback: str | None
    headers: dict[str, Any]


class PopAnswer(Answer):
    """The reserved jobs, at least one."""

    jobs: list[HeldJobAnswer]


class TouchAnswer(Answer):
    """The reservation after a touch."""

    lease: str = Field(description="The lease from now on, with the new end of the reservation.")
    time_left: float = Field(description="Seconds until the reservation ends.")


class ResponseAnswer(WithBody):
    """The return value of the job's handler."""

    id: str


class DeleteAnswer(Answer):
    """The result of deleting by id."""

    deleted: int = Field(description="Number of ids recorded as deleted, whether known or not.")


class TopicAnswer(Answer):
    """The jobs of one topic, by state."""

    topic: str
    ready: int | None
    reserved: int | None = Field(description="Null if the management API did not tell.")
    buried: int | None
    consumers: int
    paused: bool | None


class DelayedAnswer(Answer):
    """Delayed jobs that wait in one hold queue, of all topics."""

    due_within: float = Field(description="Longest remaining wait of any of them, in seconds.")
    jobs: int


class TopicsAnswer(Answer):
    """The jobs of all topics."""

    topics: list[TopicAnswer]
    unrouted: int = Field(description="Number of jobs that could not be routed.")
    delayed: list[DelayedAnswer] | None = Field(
        None, description="With `delayed=true`: the delayed jobs, those due first at the beginning."
    )


class PurgeAnswer(Answer):
    """The result of a purge."""

    removed: int = Field(description="Number of ready and buried jobs, removed at once.")


class ParkedJobAnswer(Answer):
    """A job that waits for a person. What its message lacks is null."""

    id: str | None
    topic: str | None
    attempt: int | None
    put: AwareDatetime | None
    due: AwareDatetime | None
    content_type: str
    body_bytes: int = Field(description="Size of the body.")
    body: Any = Field(None, description="With `bodies=true`: the body, if it is JSON or text.")
    body_base64: str | None = None


class BuriedJobAnswer(ParkedJobAnswer):
    """A buried job."""

    buried: AwareDatetime | None
    reason: str
    error: str | None
    error_type: str | None


class BuriedAnswer(Answer):
    """Buried jobs of a topic."""

    total: int = Field(description="Number of all buried jobs of the topic.")
    jobs: list[BuriedJobAnswer]


class UnroutedJobAnswer(ParkedJobAnswer):
    """A job that could not be routed, because a queue on its way was missing."""

    exchange: str
    routing_key: str
    why: str
    remaining: float = Field(description="The part of its delay that it has not waited, in s.")


class UnroutedAnswer(Answer):
    """Jobs that could not be routed."""

    total: int = Field(description="Number of all jobs that could not be routed.")
    jobs: list[UnroutedJobAnswer]


class KickAnswer(Answer):
    """The result of a kick."""

    kicked: int
    stayed: int = Field(description="Number of jobs that the broker refused.")
    dropped_deleted: int = Field(description="Number of jobs that were deleted already.")


class RetryAnswer(Answer):
    """The result of a retry."""

    retried: int
    stayed: int = Field(description="Number of jobs that have no route, or were refused.")


class DropAnswer(Answer):
    """The result of a drop."""

    dropped: int


class HealthAnswer(Answer):
    """The state of the gateway."""

    status: str


class CommandAnswer(Answer):
    """The answer of the protocol with commands."""

    success: bool
    error: str
    id: str
    value: str = Field(description="The body of the job.")
    encoding: str | None = Field(None, description="`base64`, if the body is not text.")


class PathAnswer(Answer):
    """The answer of the protocol with paths."""

    code: int = Field(description="0 for success, 1 for a failure.")
    message: str
    data: Any = None


class ProblemAnswer(BaseModel):
    """A problem document (RFC 9457). Some problems have more members."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Kind of the problem, such as `/problems/lease-lost`.")
    title: str
    status: int
    detail: str
    request_id: str | None = Field(
        None, description="Id of the request, which is also in the gateway's log."
    )
    sent: bool | None = Field(
        None, description="Of a put whose outcome is unknown: whether the job may still arrive."
    )
    confirmed: int | None = Field(None, description="Of a batch: number of confirmed jobs.")
    unconfirmed: list[int] | None = Field(
        None, description="Of a batch: positions of the jobs that were read but not confirmed."
    )
    taken: int | None = Field(
        None, description="Of a batch: number of jobs read; the others were not put."
    )
    errors: list[dict[str, str]] | None = Field(
        None, description="Each invalid member or parameter, and what is wrong with it."
    )
