"""Probes: test the permissions of a user and the limits of a broker by trying over AMQP.

Probes do not affect jobs. Their messages go to the exchange of responses with a routing key that no
queue is bound with, so the broker drops them. The log of deletes is consumed briefly, from its end.
"""

import secrets
from collections.abc import Generator
from dataclasses import dataclass

from rabbitdelay.core.amqp import encode, reply_codes
from rabbitdelay.core.doctor.broker_checks import LEAST_MESSAGE_BYTES
from rabbitdelay.core.doctor.facts import Unknown
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.topology.objects import Exchange
from rabbitdelay.core.topology.setup import Answers, Declare, Inspect, Round
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.administration.side_connection import Done, SideConnection
from rabbitdelay.engine.flow import Flow
from rabbitdelay.engine.transport import Channel, Closed, Connection, nothing
from rabbitdelay.errors import PermissionRefused, TopologyError

BLOCKED_SECONDS = 2.0
"""Time without a confirm after which a blocked connection counts as an alarm."""
LOG_SECONDS = 10.0
"""Seconds that the log of deletes may take to accept a consumer."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """Findings of the publishing probe."""

    may_write: bool | None
    is_blocked: bool | Unknown
    takes_large_messages: bool | Unknown


@dataclass(frozen=True, slots=True)
class LogProbe:
    """Whether the log of deletes accepts a consumer, and whether the user may read it."""

    may_read: bool | None = None
    answers: bool | Unknown = False


def may_configure(topology: Topology) -> Generator[Round, Answers, bool | None]:
    """Return whether the user may declare; None if there is no exchange to redeclare."""
    exchange = Exchange(topology.responses_exchange, "direct")
    try:
        if (yield (Inspect(exchange),)) == (None,):
            return None
        yield (Declare(exchange),)
    except PermissionRefused:
        return False
    except TopologyError:  # other arguments, which the broker compares after permissions
        return True
    return True


def try_publishing(
    connection: SideConnection, topology: Topology, timeout: float
) -> Flow[Publishing]:
    """Publish a small and a large message that no queue receives."""
    is_taken = yield from _publish(connection, topology, 1, timeout)
    if is_taken is None:
        return _unanswered(connection)
    if not is_taken:
        reason = "this user may not write"
        return Publishing(False, Unknown(reason), Unknown(reason))  # noqa: FBT003 - a finding
    takes_large = yield from _publish(connection, topology, LEAST_MESSAGE_BYTES, timeout)
    if takes_large is None:
        return _unanswered(connection)
    return Publishing(True, False, takes_large)  # noqa: FBT003 - findings


def _unanswered(connection: SideConnection) -> Publishing:
    if connection.is_blocked:
        return Publishing(None, True, Unknown("the broker blocks publishers"))  # noqa: FBT003
    reason = "the broker does not answer a publisher"
    return Publishing(None, Unknown(reason), Unknown(reason))


def _publish(
    connection: SideConnection, topology: Topology, size: int, timeout: float
) -> Flow[bool | None]:
    """Return whether the broker accepts a message; None if it does not answer."""
    exchange, key = topology.responses_exchange, f"probe.{secrets.token_hex(8)}"

    def begin(connection: Connection, done: Done[bool]) -> None:
        def opened(channel: Channel) -> None:
            channel.on_closed(lambda *_: done(False))  # noqa: FBT003 - the answer
            channel.confirm(lambda _: done(True), nothing, lambda: send(channel))  # noqa: FBT003

        def send(channel: Channel) -> None:
            message = Message(bytes(size), {})
            frames = encode.publish(channel.number, exchange, key, message, connection.frame_max)
            connection.send_frames(frames)

        connection.open_channel(opened)

    deadline = connection.monotonic() + timeout
    while True:
        try:
            return (yield from connection.ask(begin, min(BLOCKED_SECONDS, timeout)))
        except TimeoutError:
            if connection.is_blocked or connection.monotonic() > deadline:
                return None


def try_log(connection: SideConnection, topology: Topology, timeout: float) -> Flow[LogProbe]:
    """Consume the log of deletes briefly, from its end."""

    def begin(connection: Connection, done: Done[LogProbe]) -> None:
        def closed(_channel: Channel, closed: Closed) -> None:
            if closed.code == reply_codes.ACCESS_REFUSED:
                done(LogProbe(may_read=False, answers=Unknown("this user may not read it")))
            else:
                done(LogProbe())

        def opened(channel: Channel) -> None:
            channel.on_closed(closed)
            channel.qos(1)
            found = LogProbe(may_read=True, answers=True)
            channel.consume(topology.tombstones, {"x-stream-offset": "next"}, lambda: done(found))

        connection.read_deliveries(nothing, nothing)
        connection.open_channel(opened)

    try:
        return (yield from connection.ask(begin, min(LOG_SECONDS, timeout)))
    except TimeoutError:
        return LogProbe()
