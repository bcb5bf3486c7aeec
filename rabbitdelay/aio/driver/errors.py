"""Map aiormq's errors to this package's, in one table. A test fails if an error is missing."""

import os
import ssl
from asyncio import CancelledError

from aiormq import exceptions as aiormq_errors

from rabbitdelay import errors
from rabbitdelay.address import Address
from rabbitdelay.core.amqp import reply_codes

_LOST = "the connection was lost"

CONNECTION_ERRORS: dict[type[BaseException], tuple[type[errors.ConnectionFailed], str]] = {
    aiormq_errors.ProbableAuthenticationError: (
        errors.LoginRefused,
        reply_codes.LOGIN_REFUSED,
    ),
    aiormq_errors.AuthenticationError: (
        errors.LoginRefused,
        "the broker offers no authentication mechanism that this client supports",
    ),
    aiormq_errors.ConnectionNotAllowed: (
        errors.VhostRefused,
        f"the broker says {{cause}}: {reply_codes.VHOST_ADVICE}",
    ),
    ssl.SSLError: (errors.CertificateRefused, "TLS failed: {cause}"),
    aiormq_errors.IncompatibleProtocolError: (errors.BrokerUnreachable, reply_codes.NO_HANDSHAKE),
    aiormq_errors.ProtocolSyntaxError: (errors.BrokerUnreachable, reply_codes.NOT_AMQP),
    aiormq_errors.ConnectionClosed: (errors.BrokerUnreachable, "the broker says {cause}"),
    TimeoutError: (  # asyncio.timeout raises it from the CancelledError below
        errors.BrokerUnreachable,
        f"{reply_codes.NOT_IN_TIME}{{start}}",
    ),
    CancelledError: (errors.BrokerUnreachable, _LOST),  # aiormq's error for missed heartbeats
    aiormq_errors.AMQPError: (errors.BrokerUnreachable, _LOST),
    OSError: (
        errors.BrokerUnreachable,
        f"cannot connect ({{cause}}): {reply_codes.CANNOT_CONNECT}{{start}}",
    ),
}
"""Ordered from specific to general, because the first match is used."""


def connection_error(error: BaseException | None, address: Address) -> errors.ConnectionFailed:
    """Return this package's error for a connection that failed or was closed."""
    if error is None:
        return errors.BrokerUnreachable(f"{address}: {_LOST}")
    if isinstance(error, errors.ConnectionFailed):
        return error
    causes = _causes(error)
    for cause in causes:
        reply = _reply(cause)
        if reply is not None:
            return reply_codes.connection_error(*reply, str(address))
    start = reply_codes.START_ADVICE if address.is_default else ""
    for kind, (ours, text) in CONNECTION_ERRORS.items():
        for cause in causes:
            if isinstance(cause, kind):
                advice = reply_codes.tls_advice(cause) if kind is ssl.SSLError else ""
                return ours(f"{address}: {text.format(cause=_said(cause), start=start)}{advice}")
    return errors.BrokerUnreachable(f"{address}: {type(error).__name__}")


def _reply(error: BaseException) -> tuple[int, str] | None:
    """Return the broker's reply code and text, if aiormq has kept both."""
    if not isinstance(error, aiormq_errors.ConnectionClosed) or len(error.args) != 2:  # noqa: PLR2004 - a code and a text
        return None
    code, text = error.args
    return (code, str(text)) if isinstance(code, int) and code else None


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and its causes. In aiormq, a refused login can be its own cause."""
    causes = [error]
    for cause in causes:
        inner = (*cause.args, cause.__cause__)
        causes += [one for one in inner if isinstance(one, BaseException) and one not in causes]
    return causes


def _said(cause: BaseException) -> str:
    """Return the text of an error; the system's own, as asyncio's omits the reason."""
    if isinstance(cause, ConnectionError) and cause.errno:
        return f"[Errno {cause.errno}] {os.strerror(cause.errno)}"
    return str(cause)
