"""Check that a node is ready: AMQP, the management API and the cluster's node count."""

import socket

from rabbitdelay.engine.administration.management_api import ManagementAddress, ManagementApi
from rabbitdelay.errors import ManagementUnreachable
from rabbitdelay.private_broker.machine.ports import LOOPBACK

_PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
_FRAME_HEADER_BYTES = 7
_CONNECTION_START = b"\x00\x0a\x00\x0a"  # class 10, method 10
_TIMEOUT_SECONDS = 5.0


def speaks_amqp(port: int) -> bool:
    """Whether the node answers the AMQP 0-9-1 protocol header."""
    try:
        with socket.create_connection((LOOPBACK, port), _TIMEOUT_SECONDS) as connection:
            connection.sendall(_PROTOCOL_HEADER)
            with connection.makefile("rb") as answer:
                frame = answer.read(_FRAME_HEADER_BYTES + len(_CONNECTION_START))
    except OSError:
        return False
    return frame[_FRAME_HEADER_BYTES:] == _CONNECTION_START


def management_answers(port: int) -> bool:
    """Whether the management API responds."""
    try:
        management(port).check()
    except ManagementUnreachable:
        return False
    return True


def running_nodes(port: int) -> int:
    """Return the number of running nodes according to this node's cluster."""
    try:
        nodes = management(port).nodes()
    except ManagementUnreachable:
        return 0
    return sum(bool(node.get("running")) for node in nodes)


def management(port: int) -> ManagementApi:
    """Return a client of the management API of a private node."""
    address = ManagementAddress(f"http://{LOOPBACK}:{port}/", "guest", "guest")
    return ManagementApi(address, "/", _TIMEOUT_SECONDS)
