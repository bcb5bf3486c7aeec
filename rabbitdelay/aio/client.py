"""The client: what people call."""

import asyncio
import time
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, Unpack, overload

from aio_pika import Connection

from rabbitdelay import address, discovery
from rabbitdelay.aio.awaiting import drive, start
from rabbitdelay.aio.parked_jobs import BuriedJobs, UnroutedJobs
from rabbitdelay.aio.reserved_job import ReservedJob, reserved_job
from rabbitdelay.aio.topology import ClientTopology
from rabbitdelay.aio.transport import LentTransport, OwnTransport
from rabbitdelay.core.doctor.report import Check
from rabbitdelay.core.jobs import validation
from rabbitdelay.core.topology.counts import Statistics, TopicCounts
from rabbitdelay.core.topology.namespaces import NamespaceCounts
from rabbitdelay.core.topology.topology import QueueType
from rabbitdelay.core.work.responses import Response
from rabbitdelay.core.work.retry import RetryPolicy
from rabbitdelay.engine.client import ClientEngine, Duration
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.deletes.reader import LogReader
from rabbitdelay.engine.deletes.view import TombstoneStats
from rabbitdelay.engine.deletes.writer import OnDeleted
from rabbitdelay.engine.doctor.examination import OnStep
from rabbitdelay.engine.publish.batch import OnConfirmed
from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.models import DEFAULT_TTR_MS, Job, JobOptions, JobSpec, PutOptions, make_spec


class Client:
    """Puts jobs, and takes them one by one. Any number of tasks of one event loop may share one.

    Args:
        url: The broker, `amqp://user:password@host:port/vhost` or `amqps://`; several nodes of a
            cluster with commas between them. Default: RABBITDELAY_URL, else the private node
            that `rabbitdelay broker start` started, else amqp://localhost.
        connection: The application's own aio-pika connection, instead of a URL. It is shared by
            what goes out and what comes in, and goes on when the client is closed.
        namespace: What all names on the broker begin with.
        declare: Whether missing exchanges and queues are made, as far as the broker lets this user:
            one who may not declare goes on if everything is there. False: never try.
        queue_type: "quorum", replicated and safe, or "classic", for one node and most speed.
        timeout: How long a put may take, in seconds, reconnects included.
        connect_timeout: How long to wait for the first connection, in seconds.
        window: How many puts may be on their way at once; further ones wait.
        max_body_bytes: The largest body that is taken.
        settle_seconds: Age in seconds at which a new queue counts as safe from a crash. Default:
            the client makes sure that the queue is registered on the broker's disk, which takes
            some milliseconds, and waits 3 s only for brokers that it does not know (after 4.3).
        retry: How often a job that was popped is tried, and how long is waited in between, when
            the job does not say so itself.
        allow_reply_to: Queues of other programs that responses may be written to, by name or by a
            pattern such as "myapp.*". Always allowed: the reply queues of this namespace's clients.
        max_delay: The longest delay that is put in this namespace, at most and by default 9 years.
            Deletes are kept for that long: with much to delete, say how long is long enough. It
            is fixed when the namespace is first used.
        management_url: The broker's management API, `http://host:15672` or `https://`. Default:
            port 15672 (15671 with TLS) of the broker's host, or that of the private node.
        clock: Tells the time, in seconds since 1970; for tests.
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
        settle_seconds: float | None = None,
        retry: RetryPolicy | None = None,
        allow_reply_to: Sequence[str] = (),
        max_delay: float | timedelta | None = None,
        management_url: str | None = None,
        clock: Callable[[], float] = time.time,
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
            settle_seconds=settle_seconds,
            retry=retry or RetryPolicy(),
            allow_reply_to=allow_reply_to,
            max_delay=max_delay,
            management_url=management_url,
            clock=clock,
        )
        self._engine = new_engine(settings, connection)

    @classmethod
    def _over(cls, engine: ClientEngine) -> Self:
        """Return a client with an engine that has other settings than the arguments."""
        client = cls.__new__(cls)
        client._engine = engine  # noqa: SLF001 - it is of this class
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
        """The exchanges and queues of the namespace: their names, and what makes them."""
        names = self._engine.topology
        return ClientTopology(
            names.namespace,
            names.queue_type,
            names.max_delay_ms,
            _administration=self._engine.administration,
        )

    async def connect(self) -> None:
        """Connect now, and not with the first put."""
        await drive(self._engine.connect())

    async def put(
        self,
        topic: str,
        body: Any = None,  # noqa: ANN401 - whatever is JSON-able
        *,
        reply: bool = False,
        timeout: float | None = None,
        **options: Unpack[PutOptions],
    ) -> Job:
        """Put a job, and return when the broker has confirmed it.

        The options are the fields of JobSpec. With `reply`, what its handler returns can be had
        with `response`. The job is guaranteed not to be ready before its time; it may be ready
        slightly after.

        Raises:
            InvalidJob: An argument is wrong; nothing was sent.
            OutcomeUnknown: Not confirmed within the timeout; `sent` tells whether it may arrive.
            TopologyError: A queue is missing, has other arguments, or may not be made.
            ConnectionFailed: There has been no connection to the broker yet.
        """
        return await drive(
            self._engine.put(make_spec(topic, body, **options), timeout, reply=reply)
        )

    def put_nowait(
        self,
        topic: str,
        body: Any = None,  # noqa: ANN401 - whatever is JSON-able
        *,
        reply: bool = False,
        timeout: float | None = None,
        **options: Unpack[PutOptions],
    ) -> asyncio.Task[Job]:
        """Put a job, and return a task that has the Job when the broker has confirmed it.

        To cancel the task ends the waiting, and not the put: whether it arrives is not known.
        """
        return start(self._engine.put(make_spec(topic, body, **options), timeout, reply=reply))

    async def put_many(
        self,
        specs: Iterable[JobSpec] | AsyncIterable[JobSpec],
        *,
        timeout: float | None = None,
        on_confirmed: OnConfirmed | None = None,
    ) -> int:
        """Put many jobs, from a generator too, and return how many the broker has confirmed.

        `timeout` is for each job. `on_confirmed` is called with each confirmed Job, on the event
        loop.

        Raises:
            PutManyFailed: It stopped at the first job that failed, and says which are confirmed.
        """
        return await drive(self._engine.put_many(specs, timeout, on_confirmed))

    async def replace(
        self,
        topic: str,
        body: Any = None,  # noqa: ANN401 - whatever is JSON-able
        *,
        id: str,
        timeout: float | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Put a job, and delete what was put under its id before: only the new one lives.

        The other arguments are those of put. The new job is put first: should this fail or crash
        in between, both live, and never none.

        Raises:
            OutcomeUnknown: The new job is put, and whether the old one lives is not known.
        """
        return await drive(self._engine.replace(make_spec(topic, body, id=id, **options), timeout))

    async def reschedule(
        self,
        job: Job,
        *,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        timeout: float | None = None,
    ) -> Job:
        """Let a job be due at another time: put it again, and delete the one that was.

        The new job has the same id and the same attempt. Whatever the clocks say, the old one is
        deleted.
        """
        return await drive(self._engine.reschedule(job, delay, at, timeout))

    async def delete(self, job: str | Job, *, timeout: float | None = None) -> int:
        """Delete a job, by its id or as put returned it, and return when that is durable.

        From then on it is not handed out, but for the few milliseconds in which consumers learn of
        it. By its id, all jobs are deleted that were put under it until now, retries included; what
        is put later lives. As put returned it, that one is, whatever the clocks say. Deleting what
        is finished, unknown or deleted is no error.

        Return how many ids were recorded as deleted, which is 1. Whether there was such a job is
        not known: no queue can be asked for an id.

        Raises:
            OutcomeUnknown: Not confirmed within the timeout: it may be deleted or not.
            NamespaceMissing: The namespace does not exist: there is nothing to delete.
        """
        return await drive(self._engine.delete(job, timeout))

    async def delete_many(
        self,
        jobs: Iterable[str | Job] | AsyncIterable[str | Job],
        *,
        timeout: float | None = None,
        on_deleted: OnDeleted | None = None,
    ) -> int:
        """Delete many jobs, from a generator too, and return how many ids were recorded.

        `timeout` is for each thousand. `on_deleted` is called with how many are deleted so far.

        Raises:
            DeleteManyFailed: It stopped, and says how many are deleted for sure.
        """
        return await drive(self._engine.delete_many(jobs, timeout, on_deleted))

    async def purge(self, topic: str, *, timeout: float | None = None) -> int:
        """Delete every job that was put in a topic until now: delayed, ready and buried.

        Return how many were ready or buried, and are gone at once. What is delayed is dropped when
        it is due.
        """
        return await drive(self._engine.purge(topic, timeout))

    async def pause(self, topic: str, *, timeout: float | None = None) -> None:
        """Let no job of a topic be handed out, anywhere, until `resume`. What is held goes on."""
        await drive(self._engine.pause(topic, timeout))

    async def resume(self, topic: str, *, timeout: float | None = None) -> None:
        """Let the jobs of a topic be handed out again."""
        await drive(self._engine.resume(topic, timeout))

    async def topics(self, *names: str) -> list[TopicCounts]:
        """Count the jobs of these topics, or of all, and say which topics are paused.

        Without names it asks the broker's management API which topics there are.

        Raises:
            ManagementUnreachable: No topics were named, and the API does not answer.
            CutOff: The log of deletes cannot be read, so that paused topics are unknown.
        """
        return await drive(self._engine.topics(names))

    async def count(self, topic: str) -> TopicCounts | None:
        """Count the ready and buried jobs of a topic; None when there is no such topic.

        Only the two queues of the topic are queried: how many jobs are reserved, and whether the
        topic is paused, is None.
        """
        return await drive(self._engine.count(topic))

    async def stats(self, *names: str, delayed: bool = True) -> Statistics:
        """Count the jobs of these topics, or of all, and the delayed ones by hold queue.

        The management API lists the topics and counts what is reserved. Without it only named
        topics are counted, and `management_error` says why. Pauses are unknown when the log of
        deletes cannot be read within 5 s; `deletes_error` says why. `delayed=False` leaves out the
        hold queues, which without the API are queried one by one.

        Raises:
            ConnectionFailed: There is no connection to the broker.
        """
        return await drive(self._engine.stats(names, delayed=delayed))

    async def namespaces(self) -> list[NamespaceCounts]:
        """List the namespaces of the broker's vhost, with the number of their topics and jobs.

        The counts are some seconds old.

        Raises:
            ManagementUnreachable: Only the management API can list them, and it does not answer.
        """
        return await drive(self._engine.administration.namespaces())

    async def examine(
        self,
        *,
        longest_ttr: float | timedelta = DEFAULT_TTR_MS / 1000,
        on_step: OnStep | None = None,
    ) -> tuple[Check, ...]:
        """Check the broker and the namespace, and return what is right and wrong with them.

        It makes nothing and changes no job. It takes up to 30 seconds where jobs seem to be stuck.
        `longest_ttr` is compared with the broker's `consumer_timeout`. `on_step` is called with a
        few words before each step.

        Raises:
            ConnectionFailed: There is no connection to the broker.
        """
        return await drive(self._engine.examine(longest_ttr, on_step))

    async def tombstones(self) -> TombstoneStats:
        """Read the log of deletes to its end, and say what is known by it."""
        return (await self._log_reader()).stats()

    def buried(self, topic: str) -> BuriedJobs:
        """Return the buried jobs of a topic: to count, list, show, kick or drop them.

        Raises:
            InvalidJob: The topic is not valid.
        """
        return BuriedJobs(self._engine.buried(topic))

    def unrouted(self) -> UnroutedJobs:
        """Return the jobs that could not be routed: to count, list, show, retry or drop them."""
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
        """Take the next job of a topic, or of several, and hold it for at most its ttr.

        It waits on the broker for at most `wait` seconds, without a limit when that is None, and
        returns None when no job came. With `max` it returns a list of what is there, at most so
        many, and waits for the first of them only. It makes no topic: one that does not exist yet
        is waited for.

        Raises:
            InvalidJob: A topic is none.
            NamespaceMissing: The namespace does not exist, and did not until the end.
            ConnectionFailed: There is no connection to the broker, and was none until the end.
        """
        consumer, leases = await drive(self._engine.pop(topics, max, wait))
        jobs = [reserved_job(lease, consumer.settlement, self) for lease in leases]
        return jobs if max is not None else jobs[0] if jobs else None

    async def response(self, job: Job, *, wait: Duration = 30) -> Response | None:
        """Return the response to a job that this client put with `reply`, once.

        It waits for at most `wait` seconds, without a limit when that is None, and returns None
        when no response came.

        Raises:
            NoResponse: There will be none: the job was buried. It tells why.
            InvalidJob: The job was not put with `reply` by this client.
        """
        return await drive(self._engine.response(job, wait))

    async def reply_queue(self) -> str:
        """Return the queue of this client's responses, for a JobSpec's `reply_to`; made if need be.

        It goes an hour after the client. What comes in it is had with `response`.
        """
        return await drive(self._engine.reply_queue())

    async def close(self, timeout: float | None = None) -> None:
        """Wait for what is on its way, at most `timeout` seconds, and close.

        Jobs that are still held go back to the broker.
        """
        await drive(self._engine.close(timeout))

    async def _log_reader(self) -> LogReader:
        """Return the reader of the log of deletes, which has read it to its end."""
        return await drive(self._engine.log_reader())


def new_engine(settings: ClientSettings, connection: Connection | None) -> ClientEngine:
    """Return the engine of a new client, not connected.

    Raises:
        InvalidConfiguration: There are a URL and a connection, or it is no connection of aio-pika.
    """
    if connection is None:
        addresses = discovery.locate(settings.url)
        return ClientEngine(lambda _: OwnTransport(), addresses, settings, discovery.local_node)
    if settings.url is not None:
        raise InvalidConfiguration("give either a URL or a connection, not both")
    if not isinstance(connection, Connection):
        raise InvalidConfiguration(
            "connection must be what `await aio_pika.connect(…)` or connect_robust returned, "
            f"not a {type(connection).__name__}"
        )
    addresses = _addresses(connection)
    return ClientEngine(
        lambda _: LentTransport(connection), addresses, settings, discovery.local_node
    )


def _addresses(connection: Connection) -> tuple[address.Address, ...]:
    """Where a connection leads, for what is said about it; its options are aio-pika's own."""
    return (address.parse(str(connection.url.with_query(None))),)
