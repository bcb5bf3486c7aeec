"""Reply codes and texts of the broker become errors with the right advice."""

import ssl

import pytest

from rabbitdelay.core.amqp import reply_codes
from rabbitdelay.errors import (
    PermissionRefused,
    QueueUnavailable,
    TopologyConflict,
    TopologyError,
    TopologyMissing,
)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (406, "PRECONDITION_FAILED - queue 'a' in vhost '/' does not have a running replica"),
        (404, "NOT_FOUND - home node 'b' of durable queue 'a' is down or inaccessible"),
    ],
)
def test_a_queue_without_a_running_replica_is_unavailable(code: int, text: str) -> None:
    """The advice must not be to create or change anything."""
    error = reply_codes.channel_error(code, text)
    assert type(error) is QueueUnavailable
    assert "comes back when its node does" in str(error)
    assert "queue type" not in str(error)
    assert "topology apply" not in str(error)
    assert reply_codes.is_passing(str(error))


@pytest.mark.parametrize(("what", "may_start"), [("replica", False), ("running replica", True)])
def test_a_stream_without_a_replica_on_the_node_is_unavailable(
    what: str, *, may_start: bool
) -> None:
    text = f"PRECONDITION_FAILED - queue 'a' in vhost '/' does not have a {what} on the local node"
    error = reply_codes.channel_error(406, text)
    assert type(error) is QueueUnavailable
    assert "connect to another node" in str(error)
    assert reply_codes.is_passing(str(error)) == may_start


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        (403, PermissionRefused),
        (404, TopologyMissing),
        (406, TopologyConflict),
        (541, TopologyError),
    ],
)
def test_each_reply_to_a_channel_has_its_own_error(code: int, ours: type[TopologyError]) -> None:
    error = reply_codes.channel_error(code, "why")
    assert type(error) is ours
    assert "why" in str(error)


def test_missing_and_conflicting_queues_have_their_own_errors() -> None:
    assert type(reply_codes.channel_error(404, "NOT_FOUND - no queue 'a'")) is TopologyMissing
    inequivalent = "PRECONDITION_FAILED - inequivalent arg 'x-queue-type'"
    assert type(reply_codes.channel_error(406, inequivalent)) is TopologyConflict


def test_configure_permission_is_advised_only_to_a_declaring_client() -> None:
    refused = reply_codes.channel_error(403, "ACCESS_REFUSED - access to queue 'a' refused")
    assert isinstance(refused, PermissionRefused)
    assert "configure" not in str(refused)
    told = str(reply_codes.may_not_declare(refused, ["queue a"], "rabbitdelay topology apply"))
    assert "configure" in told
    assert told.startswith("queue a is missing, and this user may not declare (the broker says 403")
    assert "docs/operations.md" not in told


def test_an_error_names_only_the_first_missing_queues() -> None:
    refused = PermissionRefused("the broker says 403")
    told = str(reply_codes.may_not_declare(refused, [f"queue {n}" for n in range(23)], "command"))
    assert told.startswith("queue 0, queue 1, queue 2 and 20 more are missing")


def test_tls_advice_is_for_ports_that_do_not_speak_tls() -> None:
    wrong = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")
    assert "use amqp://" in reply_codes.tls_advice(wrong)
    untrusted = ssl.SSLError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate")
    assert reply_codes.tls_advice(untrusted) == ""
