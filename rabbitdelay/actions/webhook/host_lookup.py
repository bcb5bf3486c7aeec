"""Resolving: the addresses of a host, looked up once, within a time."""

import queue
import socket
import threading
from collections.abc import Callable, Sequence
from ipaddress import ip_address

from rabbitdelay.actions.webhook.allow_list import IPAddress
from rabbitdelay.actions.webhook.url import literal_address

Resolver = Callable[[str], Sequence[str]]
"""Returns the addresses of a name, as text; an OSError when there are none."""


def look_up(name: str) -> list[str]:
    """Ask the system for the addresses of a name."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def resolve(host: str, resolver: Resolver, timeout_seconds: float) -> list[IPAddress]:
    """Return the addresses of a host; OSError when there are none, or none in time."""
    literal = literal_address(host)
    if literal is not None:
        return [literal]
    addresses = [ip_address(text) for text in _in_time(host, resolver, timeout_seconds)]
    if not addresses:
        raise OSError("its name has no address")
    return addresses


def _in_time(host: str, resolver: Resolver, timeout_seconds: float) -> Sequence[str]:
    """Ask on a thread of its own: the system's resolver has no timeout that could be given."""
    answers: queue.SimpleQueue[Sequence[str] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(resolver(host))
        except (OSError, UnicodeError) as error:
            answers.put(OSError(f"its name cannot be looked up: {error}"))

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=timeout_seconds)
    except queue.Empty:
        raise TimeoutError("its name could not be looked up in time") from None
    if isinstance(answer, OSError):
        raise answer
    return answer
