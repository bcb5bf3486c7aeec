"""Mapping aiormq's errors to this package's."""

import inspect
import socket
import ssl
from asyncio import CancelledError

import pytest
from aiormq import exceptions as aiormq_errors

from rabbitdelay import address, errors
from rabbitdelay.aio.driver.errors import connection_error

ADDRESS = address.parse("amqp://bob:s3cr3t@mq.example")

KNOWN = {
    *("AMQPError", "AMQPException", "AMQPConnectionError", "AMQPChannelError"),
    *("AuthenticationError", "ProbableAuthenticationError", "IncompatibleProtocolError"),
    *("ConnectionClosed", "ConnectionChannelError", "ConnectionCommandInvalid"),
    *("ConnectionFrameError", "ConnectionInternalError", "ConnectionNotAllowed"),
    *("ConnectionNotImplemented", "ConnectionResourceError", "ConnectionSyntaxError"),
    *("ConnectionUnexpectedFrame", "ProtocolSyntaxError", "InvalidFrameError"),
    *("ChannelClosed", "ChannelAccessRefused", "ChannelInvalidStateError"),
    *("ChannelLockedResource", "ChannelNotFoundEntity", "ChannelPreconditionFailed"),
    *("DeliveryError", "DuplicateConsumerTag", "MethodNotImplemented", "PublishError"),
}


def test_every_error_of_aiormq_is_known() -> None:
    """If this fails, map the new error in aio/driver/errors.py, and add it here."""
    classes = inspect.getmembers(aiormq_errors, inspect.isclass)
    assert {name for name, kind in classes if issubclass(kind, BaseException)} == KNOWN


def caused_by(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (aiormq_errors.ProbableAuthenticationError("ACCESS_REFUSED"), errors.LoginRefused),
        (aiormq_errors.AuthenticationError("no mechanism"), errors.LoginRefused),
        (aiormq_errors.ConnectionClosed(530, "NOT_ALLOWED"), errors.VhostRefused),
        (aiormq_errors.ConnectionNotAllowed("vhost"), errors.VhostRefused),
        (aiormq_errors.ConnectionClosed(403, "ACCESS_REFUSED"), errors.LoginRefused),
        (aiormq_errors.ConnectionClosed(320, "CONNECTION_FORCED"), errors.ConnectionFailed),
        (aiormq_errors.ConnectionClosed("gone"), errors.BrokerUnreachable),
        (aiormq_errors.ConnectionFrameError("x"), errors.BrokerUnreachable),
        (aiormq_errors.AMQPConnectionError("x"), errors.BrokerUnreachable),
        (aiormq_errors.IncompatibleProtocolError("x"), errors.BrokerUnreachable),
        (aiormq_errors.InvalidFrameError("x"), errors.BrokerUnreachable),
        (
            caused_by(aiormq_errors.AMQPConnectionError("x"), ssl.SSLError(1, "bad")),
            errors.CertificateRefused,
        ),
        (ssl.SSLCertVerificationError(1, "bad"), errors.CertificateRefused),
        (ConnectionRefusedError(111, "Connect call failed"), errors.BrokerUnreachable),
        (socket.gaierror(-2, "unknown"), errors.BrokerUnreachable),
        (TimeoutError(), errors.BrokerUnreachable),
        (CancelledError(), errors.BrokerUnreachable),
        (RuntimeError("x"), errors.BrokerUnreachable),
        (None, errors.BrokerUnreachable),
    ],
)
def test_each_error_of_aiormq_is_mapped(
    theirs: BaseException | None, ours: type[errors.RabbitDelayError]
) -> None:
    error = connection_error(theirs, ADDRESS)
    assert type(error) is ours
    assert "s3cr3t" not in str(error)
    assert "mq.example" in str(error)


def test_an_error_that_causes_itself_is_mapped() -> None:
    """After a refused login, aiormq's error is its own cause."""
    refused = aiormq_errors.ProbableAuthenticationError("ACCESS_REFUSED")
    cancelled = caused_by(CancelledError(refused), refused)
    error = connection_error(caused_by(refused, cancelled), ADDRESS)
    assert type(error) is errors.LoginRefused


def test_an_attempt_that_takes_too_long_is_not_a_lost_connection() -> None:
    """asyncio.timeout raises its error from the cancellation that ends the attempt."""
    error = connection_error(caused_by(TimeoutError(), CancelledError()), ADDRESS)
    assert "cannot connect in time" in str(error)


def test_the_reason_is_the_systems() -> None:
    error = connection_error(
        ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 5672)"), ADDRESS
    )
    assert "[Errno 111] Connection refused" in str(error)


@pytest.mark.parametrize(
    ("url", "is_shown"),
    [("amqp://localhost", True), ("amqp://127.0.0.1", True), ("amqp://localhost:1", False)],
)
def test_the_default_address_advises_to_start_a_private_broker(url: str, is_shown: bool) -> None:  # noqa: FBT001 - parametrized
    error = connection_error(ConnectionRefusedError(111, "Connect call failed"), address.parse(url))
    assert ("`rabbitdelay broker start`" in str(error)) is is_shown
