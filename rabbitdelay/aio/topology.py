"""The topology of a client's namespace: its names, and the verbs that make and remove it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rabbitdelay.aio.awaiting import drive
from rabbitdelay.core.topology.definitions import Definitions
from rabbitdelay.core.topology.namespaces import Removal
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.topology.administration import (
    Administration,
    Applied,
    Delay,
    OnProgress,
    Selection,
    Verification,
)


@dataclass(frozen=True, slots=True)
class ClientTopology(Topology):
    """The exchanges and queues of a namespace. `Client.topology` returns it.

    Every namespace has its levels, `unrouted`, `settling` and the log of deletes. Hold queues and
    topics are made by the first put that needs them, or ahead of it with `apply`. The hold queues
    are selected by the `delays` that need them or by `all_hold_queues`.
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
        """Make what is missing, and return when it is safe to put through.

        `timeout` is the time without any answer, in seconds. `on_progress` is called with the
        number of declarations that are done, and of all, on the I/O thread.

        Raises:
            TopologyConflict: Something exists with other arguments.
            PermissionRefused: The user may not declare.
            OutcomeUnknown: The broker stopped answering; calling again completes it.
        """
        selection = Selection.of(topics, delays, all_hold_queues=all_hold_queues)
        return await drive(self._administration.apply(selection, on_progress, timeout))

    async def verify(
        self,
        *,
        topics: str | Iterable[str] = (),
        delays: Iterable[Delay] = (),
        all_hold_queues: bool = False,
        timeout: float | None = None,
    ) -> Verification:
        """Compare the broker with what should be there; nothing is made.

        With the management API everything that exists in the namespace is compared, with its
        bindings and the policies that apply to it. Without it, only what every namespace has and
        what is selected, and neither bindings nor policies: `unchecked` says why.
        """
        selection = Selection.of(topics, delays, all_hold_queues=all_hold_queues)
        return await drive(self._administration.verify(selection, timeout))

    def export(
        self,
        *,
        topics: str | Iterable[str] = (),
        delays: Iterable[Delay] = (),
        all_hold_queues: bool = False,
        vhost: str | None = None,
    ) -> Definitions:
        """Return RabbitMQ definitions to import, for a broker that clients may not change.

        No broker is needed. The default vhost is that of the client.
        """
        selection = Selection.of(topics, delays, all_hold_queues=all_hold_queues)
        return self._administration.export(selection, vhost)

    async def exists(self) -> bool:
        """Whether the namespace exists on the broker."""
        return await drive(self._administration.exists())

    async def require(self) -> None:
        """Make sure that the namespace exists.

        Raises:
            NamespaceMissing: It does not. Namespaces with similar names are suggested, where the
                management API answers.
        """
        await drive(self._administration.require())

    async def remove(
        self,
        *,
        force: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,
    ) -> Removal:
        """Remove the namespace: its queues, its exchanges and its log of deletes.

        Stop the programs that put first: a put makes the namespace again. Without `force` it is
        removed only when it has no jobs and no consumers. With `dry_run` nothing is removed. The
        management API lists what there is; its counts of reserved jobs and consumers are some
        seconds old.

        Return what was removed, with the number of jobs that were in it.

        Raises:
            NamespaceInUse: It has jobs or consumers, and `force` was not given.
            NamespaceMissing: It does not exist.
            ManagementUnreachable: The management API does not answer.
        """
        return await drive(
            self._administration.remove(
                force=force, dry_run=dry_run, on_progress=on_progress, timeout=timeout
            )
        )
