"""Free TCP ports on the loopback interface."""

import random
import socket
from collections.abc import Iterable

LOOPBACK = "127.0.0.1"

# Below the ephemeral ports of Linux (32768 and up) and macOS (49152 and up). An outgoing connection
# could otherwise occupy a node's port while the node is down and keep it from restarting.
_CANDIDATES = range(20_000, 32_000)
_ATTEMPTS = 200


def is_free(port: int) -> bool:
    """Whether a server can listen on this port now."""
    with socket.socket() as probe:
        # The Erlang VM does the same, so connections that linger after a kill do not block a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def pick_free(count: int, *, avoid: Iterable[int] = ()) -> list[int]:
    """Return `count` distinct free ports in random order."""
    taken = set(avoid)
    candidates = random.SystemRandom().sample(_CANDIDATES, _ATTEMPTS)
    free = (port for port in candidates if port not in taken and is_free(port))
    return [next(free) for _ in range(count)]


def accepts_connections(port: int, *, timeout_seconds: float = 0.5) -> bool:
    """Whether a server listens on this port."""
    try:
        socket.create_connection((LOOPBACK, port), timeout_seconds).close()
    except OSError:
        return False
    return True
