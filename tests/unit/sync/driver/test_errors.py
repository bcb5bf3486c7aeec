"""Mapping pika's errors to this package's."""

import inspect
import socket
import ssl

import pytest
from pika import exceptions as pika_errors

from rabbitdelay import address, errors
from rabbitdelay.sync.driver.errors import connection_error

ADDRESS = address.parse("amqp://bob:s3cr3t@mq.example")

KNOWN = {
    *("AMQPError", "AMQPConnectionError", "ConnectionOpenAborted", "StreamLostError"),
    *("IncompatibleProtocolError", "AuthenticationError", "ProbableAuthenticationError"),
    *("ProbableAccessDeniedError", "NoFreeChannels", "ConnectionWrongStateError"),
    *("ConnectionClosed", "ConnectionClosedByBroker", "ConnectionClosedByClient"),
    *("ConnectionBlockedTimeout", "AMQPHeartbeatTimeout", "AMQPChannelError"),
    *("ChannelWrongStateError", "ChannelClosed", "ChannelClosedByBroker"),
    *("ChannelClosedByClient", "DuplicateConsumerTag", "ConsumerCancelled", "UnroutableError"),
    *("NackError", "InvalidChannelNumber", "ProtocolSyntaxError", "UnexpectedFrameError"),
    *("ProtocolVersionMismatch", "BodyTooLongError", "InvalidFrameError"),
    *("InvalidFieldTypeException", "UnsupportedAMQPFieldException", "MethodNotImplemented"),
    *("ChannelError", "ReentrancyError", "ShortStringTooLong", "DuplicateGetOkCallback"),
}


def test_every_error_of_pika_is_known() -> None:
    """If this fails, map the new error in sync/driver/errors.py, and add it here."""
    there = {name for name, _ in inspect.getmembers(pika_errors, inspect.isclass)}
    assert {name for name in there if issubclass(getattr(pika_errors, name), Exception)} == KNOWN


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (pika_errors.ConnectionClosedByBroker(403, "ACCESS_REFUSED"), errors.LoginRefused),
        (pika_errors.ConnectionClosedByBroker(530, "NOT_ALLOWED"), errors.VhostRefused),
        (pika_errors.ConnectionClosedByBroker(320, "CONNECTION_FORCED"), errors.ConnectionFailed),
        (pika_errors.ProbableAuthenticationError(1, "x"), errors.LoginRefused),
        (pika_errors.ProbableAccessDeniedError(1, "x"), errors.VhostRefused),
        (pika_errors.AMQPConnectionError(ConnectionRefusedError(111)), errors.BrokerUnreachable),
        (pika_errors.AMQPConnectionError(socket.gaierror(-2)), errors.BrokerUnreachable),
        (pika_errors.AMQPConnectionError(ssl.SSLError(1, "bad")), errors.CertificateRefused),
        (pika_errors.StreamLostError("x"), errors.BrokerUnreachable),
        (pika_errors.AMQPHeartbeatTimeout("x"), errors.BrokerUnreachable),
        (pika_errors.InvalidFrameError("x"), errors.BrokerUnreachable),
        (RuntimeError("x"), errors.BrokerUnreachable),
    ],
)
def test_each_error_of_pika_is_mapped(
    theirs: Exception, ours: type[errors.RabbitDelayError]
) -> None:
    error = connection_error(theirs, ADDRESS)
    assert type(error) is ours
    assert "s3cr3t" not in str(error)
    assert "mq.example" in str(error)


@pytest.mark.parametrize(
    ("url", "is_shown"),
    [("amqp://localhost", True), ("amqp://127.0.0.1", True), ("amqp://localhost:1", False)],
)
def test_the_default_address_advises_to_start_a_private_broker(url: str, is_shown: bool) -> None:  # noqa: FBT001 - parametrized
    error = connection_error(
        pika_errors.AMQPConnectionError(ConnectionRefusedError(111)), address.parse(url)
    )
    assert ("`rabbitdelay broker start`" in str(error)) is is_shown
