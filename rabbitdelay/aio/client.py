"""The client: the application's interface for putting and popping jobs."""

import asyncio
from collections.abc import AsyncIterable, Iterable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from aio_pika import Connection

from rabbitdelay import address, discovery
from rabbitdelay.aio.awaiting import drive, start
from rabbitdelay.aio.driver.transport import LentTransport, OwnTransport
from rabbitdelay.aio.parked_jobs import BuriedJobs, UnroutedJobs
from rabbitdelay.aio.reserved_job import ReservedJob, reserved_job
from rabbitdelay.aio.topology import ClientTopology
from rabbitdelay.core.administration.counts import Statistics, TopicCounts
from rabbitdelay.core.administration.namespaces import NamespaceCounts
from rabbitdelay.core.doctor.report import Check
from rabbitdelay.core.jobs import validation
from rabbitdelay.core.topology.topology import QueueType
from rabbitdelay.core.work.responses import Response
from rabbitdelay.core.work.retry import RetryPolicy
from rabbitdelay.engine.client import ClientEngine, Duration
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.delete_log.reader import LogReader
from rabbitdelay.engine.deletes.known_deletes import TombstoneStats
from rabbitdelay.engine.deletes.writer import OnDeleted
from rabbitdelay.engine.doctor.examination import OnStep
from rabbitdelay.engine.flow import Flow
from rabbitdelay.engine.publish.batch import OnConfirmed
from rabbitdelay.engine.transport_source import TransportSource
from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.models import DEFAULT_TTR_MS, Job, JobOptions, JobSpec, PutOptions, make_spec
from rabbitdelay.system_time import TimeSource, unix_seconds

Result = TypeVar("Result")


class Client:
    """Puts and pops jobs. Any number of tasks of one event loop may share one.

    Args:
        url: URL of the broker, `amqp://user:password@host:port/vhost` or `amqps://`, or of
            several nodes of a cluster, separated by commas. Default: RABBITDELAY_URL, else the
            private node that `rabbitdelay broker start` started, else amqp://localhost.
        connection: The application's own aio-pika connection, instead of a URL. The client
            publishes and consumes on it, and leaves it open when the client is closed.
        namespace: Prefix of every exchange and queue name.
        declare: Whether to declare missing exchanges and queues. A user without that permission
            can use the client if everything exists. With False, the client never declares.
        queue_type: "quorum", replicated and safe, or "classic", fastest and on one node only.
        timeout: Maximum duration of a put, in seconds, including reconnects.
        connect_timeout: Maximum wait for the first connection, in seconds.
        window: Maximum number of puts in flight; further puts wait.
        max_body_bytes: Maximum size of a body, in bytes.
        stabilise_seconds: Age in seconds at which a new queue is considered crash-safe. Default:
            the client makes sure that the queue is registered on the broker's disk, which takes a
            few milliseconds, and waits 3 s only with brokers newer than 4.3, which it does not
            know.
        retry: Maximum attempts and backoff for popped jobs that do not set their own.
        allow_reply_to: Queues of other programs to which responses may be published, by name or by
            a pattern such as "myapp.*". The reply queues of this namespace's clients are always
            allowed.
        max_delay: Maximum delay of a job in this namespace, at most and by default 9 years. Deletes
            are kept for that long, so set a lower value if many jobs are deleted. The value is
            fixed when the namespace is first used.
        management_url: URL of the broker's management API, `http://host:15672` or `https://`.
            Default: port 15672 (15671 with TLS) of the broker's host, or that of the private node.
        clock: Function that returns the current Unix time in seconds; for tests.
        transport: Broker in memory to use instead of RabbitMQ; for tests.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        connection: Connection | None = None,
        namespace: str = "rabbitdelay",
        declare: bool = True,
        queue_type: QueueType = "quorum",
        timeout: float = 30.0,
        connect_timeout: float = 10.0,
        window: int = 2_000,
        max_body_bytes: int = validation.DEFAULT_MAX_BODY_BYTES,
        stabilise_seconds: float | None = None,
        retry: RetryPolicy | None = None,
        allow_reply_to: Sequence[str] = (),
        max_delay: float | timedelta | None = None,
        management_url: str | None = None,
        clock: TimeSource = unix_seconds,
        transport: TransportSource | None = None,
    ) -> None:
        settings = ClientSettings(
            url=url,
            namespace=namespace,
            declare=declare,
            queue_type=queue_type,
            timeout=timeout,
            connect_timeout=connect_timeout,
            window=window,
            max_body_bytes=max_body_bytes,
            stabilise_seconds=stabilise_seconds,
            retry=retry or RetryPolicy(),
            allow_reply_to=allow_reply_to,
            max_delay=max_delay,
            management_url=management_url,
            clock=clock,
            transport=transport,
        )
        self._engine = new_engine(settings, connection)

    @classmethod
    def _over(cls, engine: ClientEngine) -> Self:
        """Return a client on an existing engine."""
        client = cls.__new__(cls)
        client._engine = engine  # noqa: SLF001 - of this class
        return client

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Client{self._engine}"

    @property
    def topology(self) -> ClientTopology:
        """The exchanges and queues of the namespace, with verbs to declare and remove them."""
        names = self._engine.topology
        return ClientTopology(
            names.namespace,
            names.queue_type,
            names.max_delay_ms,
            _administration=self._engine.administration,
        )

    async def connect(self) -> None:
        """Connect now instead of at the first use."""
        await self._drive(self._engine.connect())

    async def put(
        self,
        topic: str,
        body: Any = None,  # noqa: ANN401 - any JSON value
        *,
        reply: bool = False,
        timeout: float | None = None,
        **options: Unpack[PutOptions],
    ) -> Job:
        """Put a job and return once the broker has confirmed it.

        The options are the fields of JobSpec. With `reply`, the return value of the job's handler
        is available from `response`. A job never becomes ready before it is due; it may become
        ready slightly later.

        Raises:
            InvalidJob: An argument is invalid; nothing was sent.
            OutcomeUnknown: The job was not confirmed within the timeout; `sent` says whether it may
                still arrive.
            TopologyError: A queue is missing, has other arguments, or may not be declared.
            ConnectionFailed: The client has not been able to connect to the broker yet.
        """
        return await self._drive(
            self._engine.put(make_spec(topic, body, **options), timeout, reply=reply)
        )

    def put_nowait(
        self,
        topic: str,
        body: Any = None,  # noqa: ANN401 - any JSON value
        *,
        reply: bool = False,
        timeout: float | None = None,
        **options: Unpack[PutOptions],
    ) -> asyncio.Task[Job]:
        """Put a job and return a task, which has the Job once the broker has confirmed it.

        Cancelling the task ends the wait but does not undo the put: the job may still arrive.
        """
        put = self._engine.put(make_spec(topic, body, **options), timeout, reply=reply)
        return start(put, self._engine.settings.transport)

    async def put_many(
        self,
        specs: Iterable[JobSpec] | AsyncIterable[JobSpec],
        *,
        timeout: float | None = None,
        on_confirmed: OnConfirmed | None = None,
    ) -> int:
        """Put many jobs, from any iterable, and return how many the broker has confirmed.

        `timeout` applies to each job. `on_confirmed` is called with each confirmed Job, on the
        event loop.

        Raises:
            PutManyFailed: A job failed, and the rest of the input was not read. The error lists the
                unconfirmed jobs.
        """
        return await self._drive(self._engine.put_many(specs, timeout, on_confirmed))

    async def replace(
        self,
        topic: str,
        body: Any = None,  # noqa: ANN401 - any JSON value
        *,
        id: str,
        timeout: float | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Put a job and delete all jobs that were put with the same id before.

        The other arguments are those of `put`. The new job is put first, so a failure or crash in
        between leaves both jobs, never neither.

        Raises:
            OutcomeUnknown: The new job was put, but the old one may or may not be deleted.
        """
        return await self._drive(
            self._engine.replace(make_spec(topic, body, id=id, **options), timeout)
        )

    async def reschedule(
        self,
        job: Job,
        *,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        timeout: float | None = None,
    ) -> Job:
        """Change when a job is due: put it again and delete the original.

        The new job has the same id and the same attempt. The original is deleted even if clocks
        disagree.
        """
        return await self._drive(self._engine.reschedule(job, delay, at, timeout))

    async def delete(self, job: str | Job, *, timeout: float | None = None) -> int:
        """Delete a job, given by id or as returned by `put`, and return once the delete is durable.

        From then on no consumer receives the job, except in the few milliseconds until consumers
        learn of the delete. An id deletes all jobs put with it so far, including their retries, but
        not jobs put later. A Job deletes exactly that job, even if clocks disagree. Deleting a job
        that is finished, unknown or already deleted is not an error.

        Return the number of ids recorded as deleted, which is 1. The client cannot know whether the
        job existed, because RabbitMQ queues cannot be searched by id.

        Raises:
            OutcomeUnknown: The delete was not confirmed within the timeout and may have happened.
            NamespaceMissing: The namespace does not exist, so there is nothing to delete.
        """
        return await self._drive(self._engine.delete(job, timeout))

    async def delete_many(
        self,
        jobs: Iterable[str | Job] | AsyncIterable[str | Job],
        *,
        timeout: float | None = None,
        on_deleted: OnDeleted | None = None,
    ) -> int:
        """Delete many jobs, from any iterable, and return how many ids were recorded.

        `timeout` applies to each thousand jobs. `on_deleted` is called with the number of jobs
        deleted so far.

        Raises:
            DeleteManyFailed: A delete failed; the error has the number of confirmed deletes.
        """
        return await self._drive(self._engine.delete_many(jobs, timeout, on_deleted))

    async def purge(self, topic: str, *, timeout: float | None = None) -> int:
        """Delete every job put in a topic so far: delayed, ready and buried.

        Return the number of ready and buried jobs, which are removed at once. Delayed jobs are
        dropped when they are due.
        """
        return await self._drive(self._engine.purge(topic, timeout))

    async def pause(self, topic: str, *, timeout: float | None = None) -> None:
        """Pause a topic: no consumer receives its jobs until `resume()`.

        Jobs already being processed are not affected.
        """
        await self._drive(self._engine.pause(topic, timeout))

    async def resume(self, topic: str, *, timeout: float | None = None) -> None:
        """Resume a topic: consumers receive its jobs again."""
        await self._drive(self._engine.resume(topic, timeout))

    async def topics(self, *names: str) -> list[TopicCounts]:
        """Count the jobs of the given topics, or of all, and report which topics are paused.

        Without names, the broker's management API lists the topics.

        Raises:
            ManagementUnreachable: No topics were given, and the API does not answer.
            CutOff: The log of deletes cannot be read, so the paused topics are unknown.
        """
        return await self._drive(self._engine.topics(names))

    async def count(self, topic: str) -> TopicCounts | None:
        """Count the ready and buried jobs of a topic; None if the topic does not exist.

        Only the two queues of the topic are queried, so the number of reserved jobs and whether the
        topic is paused are None.
        """
        return await self._drive(self._engine.count(topic))

    async def stats(self, *names: str, delayed: bool = True) -> Statistics:
        """Count the jobs of the given topics, or of all, and the delayed jobs by hold queue.

        The management API lists the topics and counts reserved jobs. Without the API, only the
        given topics are counted, and `management_error` has the reason. If the log of deletes
        cannot be read within 5 s, paused topics are unknown, and `deletes_error` has the reason.
        `delayed=False` omits the hold queues, which are queried one by one without the API.

        Raises:
            NamespaceMissing: The namespace does not exist.
            ConnectionFailed: There is no connection to the broker.
        """
        return await self._drive(self._engine.stats(names, delayed=delayed))

    async def namespaces(self) -> list[NamespaceCounts]:
        """List the namespaces in the broker's vhost, with the numbers of their topics and jobs.

        The counts are a few seconds old.

        Raises:
            ManagementUnreachable: Only the management API can list them, and it does not answer.
        """
        return await self._drive(self._engine.administration.namespaces())

    async def examine(
        self,
        *,
        longest_ttr: float | timedelta = DEFAULT_TTR_MS / 1000,
        on_step: OnStep | None = None,
    ) -> tuple[Check, ...]:
        """Check the broker and the namespace, and return the result of each check.

        The checks declare nothing and do not change jobs. They take up to 30 seconds if jobs appear
        to be stuck. `longest_ttr` is compared with the broker's `consumer_timeout`. `on_step` is
        called with a short description before each step.

        Raises:
            ConnectionFailed: There is no connection to the broker.
        """
        return await self._drive(self._engine.examine(longest_ttr, on_step))

    async def tombstones(self) -> TombstoneStats:
        """Read the log of deletes to its end and return statistics of its records."""
        return (await self._log_reader()).known.stats()

    def buried(self, topic: str) -> BuriedJobs:
        """Return the buried jobs of a topic, with verbs to count, list, show, kick and drop them.

        Raises:
            InvalidJob: The topic name is invalid.
        """
        return BuriedJobs(self._engine.buried(topic))

    def unrouted(self) -> UnroutedJobs:
        """Return the unrouted jobs, with verbs to count, list, show, retry and drop them."""
        return UnroutedJobs(self._engine.unrouted())

    @overload
    async def pop(
        self, topics: str | Sequence[str], *, max: None = None, wait: Duration = 0
    ) -> ReservedJob | None: ...

    @overload
    async def pop(
        self, topics: str | Sequence[str], *, max: int, wait: Duration = 0
    ) -> list[ReservedJob]: ...

    async def pop(
        self, topics: str | Sequence[str], *, max: int | None = None, wait: Duration = 0
    ) -> ReservedJob | list[ReservedJob] | None:
        """Reserve the next job of one or several topics, for at most the job's ttr.

        Wait for a job for at most `wait` seconds, or without limit if `wait` is None. Return None
        if no job arrived. With `max`, return a list of at most that many available jobs; only the
        first of them is waited for. The topics are not declared; a topic that does not exist yet is
        waited for.

        Raises:
            InvalidJob: A topic name is invalid.
            NamespaceMissing: The namespace did not exist by the end of the wait.
            ConnectionFailed: There was no connection to the broker by the end of the wait.
        """
        consumer, leases = await self._drive(self._engine.pop(topics, max, wait))
        jobs = [reserved_job(lease, consumer.settlement, self) for lease in leases]
        return jobs if max is not None else jobs[0] if jobs else None

    async def response(self, job: Job, *, wait: Duration = 30) -> Response | None:
        """Return the response to a job that this client put with `reply`, only once per job.

        Wait for at most `wait` seconds, or without limit if `wait` is None. Return None if no
        response arrived.

        Raises:
            NoResponse: No response will come, because the job was buried; the error says why.
            InvalidJob: The job was not put with `reply` by this client.
        """
        return await self._drive(self._engine.response(job, wait))

    async def reply_queue(self) -> str:
        """Return the name of this client's reply queue, for `JobSpec.reply_to`.

        The queue is declared if it is missing, and expires an hour after the client is gone.
        `response` returns the responses that arrive in it.
        """
        return await self._drive(self._engine.reply_queue())

    async def close(self, timeout: float | None = None) -> None:
        """Wait at most `timeout` seconds for operations in flight, then close the client.

        Jobs that are still reserved return to their queues.
        """
        await self._drive(self._engine.close(timeout))

    async def _log_reader(self) -> LogReader:
        """Return a reader that has read the log of deletes to its end."""
        return await self._drive(self._engine.log_reader())

    async def _drive(self, flow: Flow[Result]) -> Result:
        return await drive(flow, self._engine.settings.transport)


def new_engine(settings: ClientSettings, connection: Connection | None) -> ClientEngine:
    """Return the engine of a new client, not yet connected.

    Raises:
        InvalidConfiguration: Both a URL and a connection are given, or the connection is not one of
            aio-pika's.
    """
    if settings.transport is not None:
        return ClientEngine.over(settings.transport, settings, is_async=True)
    if connection is None:
        addresses = discovery.locate(settings.url)
        return ClientEngine(lambda _: OwnTransport(), addresses, settings, discovery.local_node)
    if settings.url is not None:
        raise InvalidConfiguration("give either a URL or a connection, not both")
    if not isinstance(connection, Connection):
        raise InvalidConfiguration(
            "connection must be the result of `await aio_pika.connect(…)` or connect_robust, "
            f"not a {type(connection).__name__}"
        )
    addresses = _addresses(connection)
    return ClientEngine(
        lambda _: LentTransport(connection), addresses, settings, discovery.local_node
    )


def _addresses(connection: Connection) -> tuple[address.Address, ...]:
    """Return the address of a connection, for messages, without aio-pika's URL options."""
    return (address.parse(str(connection.url.with_query(None))),)
