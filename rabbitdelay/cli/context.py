"""Settings from the options before the command, and clients and workers that use them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Self, TypeAlias, TypedDict

import click

from rabbitdelay import discovery
from rabbitdelay.address import Address
from rabbitdelay.core.jobs import validation
from rabbitdelay.core.topology.topology import QueueType, Topology
from rabbitdelay.errors import NamespaceMissing
from rabbitdelay.executors.thread_executor import PoolKind
from rabbitdelay.sync.client import Client
from rabbitdelay.sync.worker import Worker

if TYPE_CHECKING:
    from rabbitdelay import aio

AnyWorker: TypeAlias = "Worker | aio.Worker"
"""A worker of either front end. Most commands do not need asyncio: aio-pika loads when used."""
LOOK_SECONDS = 0.2
"""Timeout of one attempt to read, after which progress can be reported."""


class CommonArguments(TypedDict):
    """Arguments that clients and workers share."""

    namespace: str
    queue_type: QueueType
    connect_timeout: float
    stabilise_seconds: float | None
    max_delay: timedelta | None


@dataclass(frozen=True, slots=True)
class Settings:
    """The options that all commands share."""

    url: str | None
    namespace: str
    queue_type: QueueType
    management_url: str | None
    stabilise_seconds: float | None
    verbose: bool = False
    max_delay: timedelta | None = None
    connect_timeout: timedelta = timedelta(0)
    timeout: timedelta = timedelta(seconds=30)
    declare: bool = True
    began_at: float = field(default_factory=time.monotonic)
    """Start of the command's timeout, in seconds on the monotonic clock."""

    @property
    def topology(self) -> Topology:
        """The exchanges and queues of the namespace."""
        max_delay_ms = validation.check_max_delay_ms(self.max_delay)
        return Topology(self.namespace, self.queue_type, max_delay_ms)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Addresses of the broker's nodes."""
        return discovery.locate(self.url)

    @property
    def rest_seconds(self) -> float:
        """Seconds left of the command's timeout."""
        return max(0.0, self.began_at + self.timeout.total_seconds() - time.monotonic())

    def beginning_now(self) -> Self:
        """Return a copy whose timeout starts now, for use after a confirmation prompt."""
        return replace(self, began_at=time.monotonic())

    def require_namespace(self) -> None:
        """Check that the namespace exists, for commands that do not create it.

        Raises:
            NamespaceMissing: The namespace does not exist. The error suggests a similar name.
        """
        with self.administrator() as client:
            client.topology.require()

    @contextmanager
    def client(
        self,
        *,
        declares: bool = False,
        creates_namespace: bool = False,
        connects: bool = True,
        allow_reply_to: Sequence[str] = (),
    ) -> Iterator[Client]:
        """Open a client, and close it after the block.

        Connecting fails at once if the broker does not respond, unless `--connect-timeout` is set.
        With `declares`, the client declares missing exchanges and queues. Without
        `creates_namespace`, a missing namespace is an error. Without `connects`, the client
        connects with its first verb.
        """
        client = self._new_client(declare=declares and self.declare, allow_reply_to=allow_reply_to)
        try:
            if connects:
                client.connect()
            if not creates_namespace:
                client.topology.require()
            yield client
        finally:
            client.close(self.rest_seconds)

    @contextmanager
    def administrator(self) -> Iterator[Client]:
        """Open a client that connects only when it has to, and close it after the block."""
        client = self._new_client(declare=self.declare)
        try:
            yield client
        finally:
            client.close(self.rest_seconds)

    def _new_client(self, *, declare: bool, allow_reply_to: Sequence[str] = ()) -> Client:
        return Client(
            self.url,
            declare=declare,
            timeout=self.rest_seconds,
            allow_reply_to=allow_reply_to,
            management_url=self.management_url,
            **self._common(),
        )

    def observer(self, timeout: float | None = None) -> Client:
        """Return a client with a short timeout that declares nothing."""
        return Client(
            self.url,
            namespace=self.namespace,
            queue_type=self.queue_type,
            declare=False,
            connect_timeout=0,
            timeout=LOOK_SECONDS if timeout is None else timeout,
            management_url=self.management_url,
        )

    def worker(
        self,
        kind: type[AnyWorker],
        *,
        concurrency: int,
        pool: PoolKind,
        grace: timedelta,
        allow_reply_to: Sequence[str] = (),
    ) -> AnyWorker:
        """Return a worker; like `client`, it fails at once if the broker does not respond."""
        return kind(
            self.url,
            concurrency=concurrency,
            pool=pool,
            grace=grace,
            allow_reply_to=allow_reply_to,
            declare=self.declare,
            **self._common(),
        )

    def _common(self) -> CommonArguments:
        return {
            "namespace": self.namespace,
            "queue_type": self.queue_type,
            "connect_timeout": self.connect_timeout.total_seconds(),
            "stabilise_seconds": self.stabilise_seconds,
            "max_delay": self.max_delay,
        }


def note_missing_namespace(client: Client) -> None:
    """Print a note with similar names, if the namespace does not exist."""
    try:
        client.topology.require()
    except NamespaceMissing as error:
        click.echo(f"note: {error}", err=True)


pass_settings = click.make_pass_decorator(Settings)
