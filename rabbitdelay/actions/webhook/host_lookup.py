"""Resolve a host to its addresses once, within a timeout."""

import queue
import socket
import threading
from collections.abc import Callable, Sequence
from ipaddress import ip_address

from rabbitdelay.actions.webhook.allow_list import IPAddress
from rabbitdelay.actions.webhook.url import literal_address

Resolver = Callable[[str], Sequence[str]]
"""Returns the addresses of a name as text; raises OSError if there are none."""


def look_up(name: str) -> list[str]:
    """Return the addresses of a name from the system's resolver."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def resolve(host: str, resolver: Resolver, timeout_seconds: float) -> list[IPAddress]:
    """Return the addresses of a host; raise OSError if there are none before the timeout."""
    literal = literal_address(host)
    if literal is not None:
        return [literal]
    addresses = [ip_address(text) for text in _in_time(host, resolver, timeout_seconds)]
    if not addresses:
        raise OSError("the host name has no address")
    return addresses


def _in_time(host: str, resolver: Resolver, timeout_seconds: float) -> Sequence[str]:
    """Resolve on another thread, because the system's resolver does not take a timeout."""
    answers: queue.SimpleQueue[Sequence[str] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(resolver(host))
        except (OSError, UnicodeError) as error:
            answers.put(OSError(f"the host name cannot be resolved: {error}"))

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=timeout_seconds)
    except queue.Empty:
        raise TimeoutError("resolving the host name timed out") from None
    if isinstance(answer, OSError):
        raise answer
    return answer
