"""The topology of a client's namespace, with the verbs that declare and remove it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from rabbitdelay.aio.awaiting import drive
from rabbitdelay.core.administration.definitions import Definitions
from rabbitdelay.core.administration.namespaces import Removal
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.administration.administration import (
    Administration,
    Applied,
    Delay,
    OnProgress,
    Selection,
    Verification,
)
from rabbitdelay.engine.flow import Flow

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ClientTopology(Topology):
    """The exchanges and queues of a namespace. `Client.topology` returns it.

    Every namespace has its levels, `unrouted`, `settling` and the log of deletes. Hold queues and
    topics are declared by the first put that needs them, or in advance by `apply`. Hold queues are
    selected by the `delays` that need them or by `all_hold_queues`.
    """

    _administration: Administration = field(kw_only=True, repr=False, compare=False)

    async def apply(
        self,
        *,
        topics: str | Iterable[str] = (),
        delays: Iterable[Delay] = (),
        all_hold_queues: bool = False,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,
    ) -> Applied:
        """Declare missing exchanges, queues and bindings; return once it is safe to put jobs.

        `timeout` is the maximum time without a reply, in seconds. `on_progress` is called with the
        numbers of completed and of all declarations, on the event loop.

        Raises:
            TopologyConflict: An exchange or queue exists with other arguments.
            PermissionRefused: The user may not declare.
            OutcomeUnknown: The broker stopped answering; another call completes the rest.
        """
        selection = Selection.of(topics, delays, all_hold_queues=all_hold_queues)
        return await self._drive(self._administration.apply(selection, on_progress, timeout))

    async def verify(
        self,
        *,
        topics: str | Iterable[str] = (),
        delays: Iterable[Delay] = (),
        all_hold_queues: bool = False,
        timeout: float | None = None,
    ) -> Verification:
        """Compare the namespace on the broker with its expected topology, without changing it.

        With the management API, the comparison covers everything in the namespace, including its
        bindings and the policies that apply to it. Without the API, it covers the parts that every
        namespace has and the selection, without bindings and policies; `unchecked` has the reason.
        """
        selection = Selection.of(topics, delays, all_hold_queues=all_hold_queues)
        return await self._drive(self._administration.verify(selection, timeout))

    def export(
        self,
        *,
        topics: str | Iterable[str] = (),
        delays: Iterable[Delay] = (),
        all_hold_queues: bool = False,
        vhost: str | None = None,
    ) -> Definitions:
        """Return RabbitMQ definitions to import into a broker on which clients may not declare.

        The call does not connect to a broker. The default vhost is that of the client.
        """
        selection = Selection.of(topics, delays, all_hold_queues=all_hold_queues)
        return self._administration.export(selection, vhost)

    async def exists(self) -> bool:
        """Whether the namespace exists on the broker."""
        return await self._drive(self._administration.exists())

    async def require(self) -> None:
        """Raise an error unless the namespace exists.

        Raises:
            NamespaceMissing: The namespace does not exist. If the management API answers, the error
                suggests namespaces with similar names.
        """
        await self._drive(self._administration.require())

    async def remove(
        self,
        *,
        force: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,
    ) -> Removal:
        """Remove the namespace: its queues, its exchanges and its log of deletes.

        Stop all programs that put jobs first, because a put declares the namespace again. Without
        `force`, the namespace is removed only if it has neither jobs nor consumers. With `dry_run`,
        nothing is removed. The management API lists the exchanges and queues; its counts of
        reserved jobs and consumers are a few seconds old.

        Return the removed exchanges and queues, with the number of jobs that they contained.

        Raises:
            NamespaceInUse: The namespace has jobs or consumers, and `force` was not given.
            NamespaceMissing: The namespace does not exist.
            ManagementUnreachable: The management API does not answer.
        """
        return await self._drive(
            self._administration.remove(
                force=force, dry_run=dry_run, on_progress=on_progress, timeout=timeout
            )
        )

    async def _drive(self, flow: Flow[Result]) -> Result:
        return await drive(flow, self._administration.source)
