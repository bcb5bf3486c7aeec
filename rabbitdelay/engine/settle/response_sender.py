"""Publish responses to jobs, to the reply queues that are allowed."""

import threading

from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.publish.outbox import Pending, Target
from rabbitdelay.core.settle.failure import Failure
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.core.work import responses
from rabbitdelay.core.work.reply_queues import ReplyQueues
from rabbitdelay.core.work.stats import StatsRecorder
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.publish.publisher import Publisher
from rabbitdelay.models import Job
from rabbitdelay.system_time import TimeSource

MOST_REFUSED_LOGGED = 1_000
"""Maximum number of refused reply queues that are logged; jobs may name any number of them."""


class ResponseSender:
    """Publishes the responses to the jobs of one consumer. Thread-safe."""

    def __init__(
        self,
        topology: Topology,
        publisher: Publisher,
        reply_queues: ReplyQueues,
        stats: StatsRecorder,
        *,
        timeout: float,
        monotonic: TimeSource,
    ) -> None:
        self._topology = topology
        self._publisher = publisher
        self._reply_queues = reply_queues
        self._stats = stats
        self._timeout = timeout
        self._monotonic = monotonic
        self._refused_queues: set[str] = set()
        self._lock = threading.RLock()

    def publish(self, job: Job, message: Message, target: Target) -> Future[None]:
        """Publish a response to a job; the future is done when it is confirmed."""
        future: Future[None] = Future()

        def resolve(error: Exception | None) -> None:
            future.set_exception(error) if error is not None else future.set_result(None)

        now = self._monotonic()
        label = f"response to {job.id} ({job.topic})"
        pending = Pending(message, target, now, now + self._timeout, resolve, label)
        self._publisher.submit_copy(pending)
        return future

    def publish_failure(self, job: Job, reason: str, why: Failure | None = None) -> None:
        """Publish a failure as the response to a job that will have no other."""
        for target in self.targets(job, keep=False):
            self.publish(job, responses.of_failure(job, reason, why), target)

    def targets(self, job: Job, *, keep: bool) -> list[Target]:
        """Return the targets of a job's response.

        Log and count a reply queue that is not allowed.
        """
        if job.reply_to is not None and not self._reply_queues.allows(job.reply_to):
            self._refuse(job, job.reply_to)
        return responses.targets(self._topology, self._reply_queues, job, keep=keep)

    def _refuse(self, job: Job, queue: str) -> None:
        with self._lock:
            self._stats.refused_reply()
            is_known = queue in self._refused_queues
            if is_known or len(self._refused_queues) >= MOST_REFUSED_LOGGED:
                return
            self._refused_queues.add(queue)
        reason = (
            f"reply_to {queue!r} is not an allowed queue; allow it with allow_reply_to, "
            "or with --allow-reply-to on the command line"
        )
        fields = {"event": "response refused", "topic": job.topic, "reason": reason}
        logger.warning("topic %s: response refused (%s)", job.topic, reason, extra=fields)
