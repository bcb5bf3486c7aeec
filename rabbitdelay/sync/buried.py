"""The buried queue of a topic: looking into it, kicking its jobs, and dropping them."""

from collections.abc import Callable

from pika import BlockingConnection

from rabbitdelay.core.deletes.tombstones import Death
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.parked import buried
from rabbitdelay.core.parked.buried import Buried
from rabbitdelay.core.settle import republish
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.models import Job
from rabbitdelay.sync.parked import Chooser, Copy, OnTried, ParkedQueue, SentOn

DeathOf = Callable[[Job, Message], Death | None]
"""Why a job is dead, or None when it lives; a Follower has one."""


class BuriedQueue(ParkedQueue[Buried]):
    """The queue of a topic's jobs that were given up on, over one connection."""

    def __init__(
        self,
        connection: BlockingConnection,
        topology: Topology,
        topic: str,
        settle_seconds: float | None = None,
        *,
        may_declare: bool = True,
    ) -> None:
        name = topology.buried_queue(topic)
        super().__init__(connection, topology, name, settle_seconds, may_declare=may_declare)
        self._topic = topic
        self.death_of: DeathOf | None = None
        """Who knows which jobs are deleted: what is dead is dropped where it is come across."""

    def kick(
        self,
        choice: Chooser[Buried],
        *,
        limit: int | None = None,
        on_tried: OnTried[Buried] | None = None,
    ) -> SentOn:
        """Make them ready again, from attempt 1; a ready queue that is missing is made.

        `on_tried` is told of each, and whether it was kicked. What is no job is kicked too: a
        consumer buries it again.
        """
        return self._send_on(choice, limit, on_tried)

    def _read(self, exchange: str, routing_key: str, message: Message) -> Buried:
        del exchange, routing_key  # whatever way it came, it is of this topic
        return Buried(self._topic, message)

    def _is_dead(self, found: Buried) -> bool:
        if self.death_of is None or (job := found.job) is None:
            return False  # what is no job cannot have been deleted
        return self.death_of(job, found.message) is not None

    def _copy(self, found: Buried, now_ms: int) -> Copy:
        kicked = republish.kicked(found.message, now_ms=now_ms)
        return Copy(buried.way_back(self._topology, found.topic), kicked.headers)

    def _why_missing(self) -> str:
        return f"nothing was ever put to topic {self._topic} in {self._topology.namespace}"
