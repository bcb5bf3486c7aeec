"""A blocking connection, for commands that do one thing after the other."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from pika import BlockingConnection
from pika import exceptions as pika_errors

from rabbitdelay.address import Address
from rabbitdelay.errors import BrokerBlocked, BrokerUnreachable
from rabbitdelay.sync import driver_errors
from rabbitdelay.sync.transport import connection_parameters

BLOCKED_SECONDS = 30.0
"""How long to wait for a broker that has raised an alarm: without it pika waits for ever."""
SHORTEST_SECONDS = 0.1
"""The shortest such wait: pika takes 0 for no limit."""


@contextmanager
def connected(
    addresses: Sequence[Address], *, blocked_seconds: float = BLOCKED_SECONDS
) -> Iterator[BlockingConnection]:
    """A connection to the first address that answers; pika's errors come out of it as ours."""
    connection, address = _open_first(addresses, blocked_seconds)
    try:
        yield connection
    except pika_errors.ConnectionBlockedTimeout:
        raise BrokerBlocked(
            f"{address}: the broker takes nothing while its memory or disk alarm lasts", sent=True
        ) from None
    except pika_errors.AMQPChannelError as error:
        raise driver_errors.channel_error(error) from None
    except pika_errors.AMQPError as error:
        raise driver_errors.connection_error(error, address) from None
    finally:
        _close(connection)


def server_version(connection: BlockingConnection) -> str | None:
    """Return the version of the broker, as it introduced itself."""
    # The blocking connection hides what the connection below it offers in public.
    properties = connection._impl.server_properties or {}  # noqa: SLF001
    version = properties.get("version")
    return version if isinstance(version, str) else None


def _open_first(
    addresses: Sequence[Address], blocked_seconds: float
) -> tuple[BlockingConnection, Address]:
    *others, last = addresses
    for address in others:
        with suppress(BrokerUnreachable):
            return _open(address, blocked_seconds), address
    return _open(last, blocked_seconds), last


def _open(address: Address, blocked_seconds: float) -> BlockingConnection:
    parameters = connection_parameters(address)
    parameters.blocked_connection_timeout = max(blocked_seconds, SHORTEST_SECONDS)
    try:
        return BlockingConnection(parameters)
    except (pika_errors.AMQPError, OSError) as error:
        raise driver_errors.connection_error(error, address) from None


def _close(connection: BlockingConnection) -> None:
    with suppress(pika_errors.AMQPError):
        connection.close()
