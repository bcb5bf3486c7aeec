"""Settings: which broker and which namespace, as the options before the command say."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta

import click
from pika import BlockingConnection

from rabbitdelay import aio, locate
from rabbitdelay.address import Address
from rabbitdelay.core import intake
from rabbitdelay.core.topology import QueueType, Topology
from rabbitdelay.engine import management
from rabbitdelay.engine.management import Management
from rabbitdelay.handling.threads import PoolKind
from rabbitdelay.sync.blocking import connected
from rabbitdelay.sync.client import Client
from rabbitdelay.sync.worker import Worker

AnyWorker = Worker | aio.Worker
"""A worker of either front."""
LOOK_SECONDS = 0.2
"""How long one look at what is read may take; then a person is told how far it is."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What every command is told."""

    url: str | None
    namespace: str
    queue_type: QueueType
    management_url: str | None
    settle_seconds: float
    verbose: bool = False
    max_delay: timedelta | None = None
    connect_timeout: timedelta = timedelta(0)

    @property
    def topology(self) -> Topology:
        """The names of the namespace."""
        max_delay_ms = intake.check_max_delay_ms(self.max_delay)
        return Topology(self.namespace, self.queue_type, max_delay_ms)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where the broker is."""
        return locate.locate(self.url)

    def client(self, allow_reply_to: Sequence[str] = ()) -> Client:
        """A client that says at once when nobody answers, unless it was told to wait."""
        return Client(
            self.url,
            namespace=self.namespace,
            queue_type=self.queue_type,
            connect_timeout=self.connect_timeout.total_seconds(),
            allow_reply_to=allow_reply_to,
            settle_seconds=self.settle_seconds,
            max_delay=self.max_delay,
        )

    def onlooker(self) -> Client:
        """A client for looking: it makes nothing, and waits for a moment only."""
        return Client(
            self.url,
            namespace=self.namespace,
            queue_type=self.queue_type,
            declare=False,
            connect_timeout=0,
            timeout=LOOK_SECONDS,
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
        """A worker of one of the fronts; like `client`, it says at once when nobody answers."""
        return kind(
            self.url,
            concurrency=concurrency,
            pool=pool,
            grace=grace,
            allow_reply_to=allow_reply_to,
            namespace=self.namespace,
            queue_type=self.queue_type,
            connect_timeout=self.connect_timeout.total_seconds(),
            settle_seconds=self.settle_seconds,
            max_delay=self.max_delay,
        )

    def connection(self) -> AbstractContextManager[BlockingConnection]:
        """A connection for looking at things and making them."""
        return connected(self.addresses)

    def management(self) -> Management:
        """The broker's management API, whether it answers or not."""
        addresses = self.addresses
        return Management(management.locate(self.management_url, addresses), addresses[0].vhost)


pass_settings = click.make_pass_decorator(Settings)
