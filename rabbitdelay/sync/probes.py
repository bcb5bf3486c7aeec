"""Probes: what a user may do and what the broker takes, found out by trying it over AMQP.

Nothing that a probe does can be seen by a job. Messages go to the exchange of responses under a
key that no queue is bound with, so that the broker drops them. The log of deletes is consumed from
its end, for a moment.
"""

import secrets
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from threading import Thread

from pika import exceptions as pika_errors

from rabbitdelay.address import Address
from rabbitdelay.core.amqp import reply_codes
from rabbitdelay.core.doctor.broker_checks import LEAST_MESSAGE_BYTES
from rabbitdelay.core.doctor.facts import Unknown
from rabbitdelay.core.topology.objects import Exchange
from rabbitdelay.core.topology.setup import Command, Declare, Inspect
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import BrokerBlocked, PermissionRefused, RabbitDelayError, TopologyError
from rabbitdelay.sync.administration import Administrator
from rabbitdelay.sync.blocking import connected

BLOCKED_SECONDS = 2.0
"""How long a publisher is blocked before that counts as an alarm."""
LOG_SECONDS = 10.0
"""How long the log of deletes may take to let a consumer in."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """What a publisher found out."""

    may_write: bool | None
    is_blocked: bool | Unknown
    takes_large_messages: bool | Unknown


def may_configure(administrator: Administrator, topology: Topology) -> bool | None:
    """Return whether the user may declare; None when there is nothing to declare again."""
    return administrator.run(_declare_again(Exchange(topology.responses_exchange, "direct")))


def _declare_again(exchange: Exchange) -> Generator[Command, int | None, bool | None]:
    try:
        if (yield Inspect(exchange)) is None:
            return None
        yield Declare(exchange)
    except PermissionRefused:
        return False
    except TopologyError:  # it has other arguments, which the broker compares after permissions
        return True
    return True


def try_publishing(addresses: Sequence[Address], topology: Topology) -> Publishing:
    """Publish a small and a large message that no queue takes."""
    try:
        may_write = _publishes(addresses, topology, 1)
        if not may_write:
            reason = "this user may not write"
            return Publishing(may_write, Unknown(reason), Unknown(reason))
        return Publishing(True, False, _publishes(addresses, topology, LEAST_MESSAGE_BYTES))  # noqa: FBT003
    except BrokerBlocked:
        return Publishing(None, True, Unknown("the broker takes no messages"))  # noqa: FBT003


def _publishes(addresses: Sequence[Address], topology: Topology, size: int) -> bool:
    with connected(addresses, blocked_seconds=BLOCKED_SECONDS) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        key = f"probe.{secrets.token_hex(8)}"
        try:
            channel.basic_publish(topology.responses_exchange, key, bytes(size))
        except pika_errors.ChannelClosedByBroker:
            return False
        return True


@dataclass(slots=True)
class LogProbe:
    """Whether the log of deletes let a consumer in, and whether the user may read it."""

    may_read: bool | None = None
    answers: bool | Unknown = False
    """False until the log has answered."""


def try_log(addresses: Sequence[Address], topology: Topology) -> LogProbe:
    """Consume the log of deletes from its end, for a moment."""
    found = LogProbe()
    _within(LOG_SECONDS, lambda: _consume_log(addresses, topology, found))
    return found


def _consume_log(addresses: Sequence[Address], topology: Topology, found: LogProbe) -> None:
    with connected(addresses) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        arguments = {"x-stream-offset": "next"}
        try:
            channel.basic_consume(topology.tombstones, lambda *_: None, arguments=arguments)
        except pika_errors.ChannelClosedByBroker as error:
            if error.reply_code == reply_codes.ACCESS_REFUSED:
                found.may_read = False
                found.answers = Unknown("this user may not read it")
            return
        found.may_read = found.answers = True


def _within(seconds: float, function: Callable[[], None]) -> None:
    """Call a function, and leave it to itself after so long: pika has no timeout for calls."""

    def run() -> None:
        try:
            function()
        except RabbitDelayError:
            return  # what it has found until then says enough

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
