"""Check that a node is ready: AMQP, the management API and the cluster's node count."""

import http.client
import json
import socket
from base64 import b64encode
from typing import Any

from rabbitdelay.private_broker.ports import LOOPBACK

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
    return management_get(port, "/api/overview") is not None


def running_nodes(port: int) -> int:
    """Return the number of running nodes according to this node's cluster."""
    nodes = management_get(port, "/api/nodes?columns=running") or []
    return sum(bool(node.get("running")) for node in nodes)


def management_get(port: int, path: str) -> Any | None:  # noqa: ANN401 - JSON is anything
    """Return the JSON response of the management API, or None if the request fails."""
    credentials = b64encode(b"guest:guest").decode()
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path, headers={"Authorization": f"Basic {credentials}"})
        response = connection.getresponse()
        return json.load(response) if response.status == http.HTTPStatus.OK else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
