"""Map pika's errors to this package's, in one table. A test fails if an error is missing."""

import ssl
from collections.abc import Iterator

from pika import exceptions as pika_errors
from pika.adapters.utils.connection_workflow import AMQPConnectorStackTimeout

from rabbitdelay import errors
from rabbitdelay.address import Address
from rabbitdelay.core.amqp import reply_codes

_NOT_IN_TIME = f"{reply_codes.NOT_IN_TIME}{{start}}"

CONNECTION_ERRORS: dict[type[BaseException], tuple[type[errors.ConnectionFailed], str]] = {
    pika_errors.ProbableAuthenticationError: (
        errors.LoginRefused,
        reply_codes.LOGIN_REFUSED,
    ),
    pika_errors.AuthenticationError: (
        errors.LoginRefused,
        "the broker offers no authentication mechanism that this client supports",
    ),
    pika_errors.ProbableAccessDeniedError: (
        errors.VhostRefused,
        f"the vhost was refused: {reply_codes.VHOST_ADVICE}",
    ),
    ssl.SSLError: (errors.CertificateRefused, "TLS failed: {cause}"),
    OSError: (
        errors.BrokerUnreachable,
        f"cannot connect ({{cause}}): {reply_codes.CANNOT_CONNECT}{{start}}",
    ),
    AMQPConnectorStackTimeout: (
        errors.BrokerUnreachable,
        _NOT_IN_TIME,
    ),  # before the AMQP handshake
    pika_errors.ConnectionOpenAborted: (errors.BrokerUnreachable, _NOT_IN_TIME),  # during it
    pika_errors.IncompatibleProtocolError: (errors.BrokerUnreachable, reply_codes.NO_HANDSHAKE),
    pika_errors.ProtocolSyntaxError: (errors.BrokerUnreachable, reply_codes.NOT_AMQP),
    pika_errors.AMQPHeartbeatTimeout: (
        errors.BrokerUnreachable,
        "the broker has not been heard from for two heartbeats",
    ),
    pika_errors.StreamLostError: (errors.BrokerUnreachable, "the connection was lost"),
    pika_errors.AMQPError: (errors.BrokerUnreachable, "the connection failed"),
}
"""Ordered from specific to general, because the first match is used."""


def connection_error(error: BaseException, address: Address) -> errors.ConnectionFailed:
    """Return this package's error for a connection that failed or was closed."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, pika_errors.ConnectionClosed):
            return reply_codes.connection_error(cause.reply_code, cause.reply_text, str(address))
    start = reply_codes.START_ADVICE if address.is_default else ""
    for kind, (ours, text) in CONNECTION_ERRORS.items():
        for cause in causes:
            if isinstance(cause, kind):
                advice = reply_codes.tls_advice(cause) if kind is ssl.SSLError else ""
                return ours(f"{address}: {text.format(cause=cause, start=start)}{advice}")
    return errors.BrokerUnreachable(f"{address}: {type(error).__name__}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and those it wraps: in arguments, in pika's attributes, in `__cause__`."""
    yield error
    attributes = [getattr(error, name, None) for name in ("exception", "exceptions")]
    wrapped = [*error.args, *attributes, error.__cause__]
    for inner in wrapped:
        items = inner if isinstance(inner, list | tuple) else [inner]
        for item in items:
            if isinstance(item, BaseException):
                yield from _causes(item)
