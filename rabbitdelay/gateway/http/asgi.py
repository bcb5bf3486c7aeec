"""The ASGI interface: its types, and what the layers read from a request."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    """Return all values of a header; the name is in lower case."""
    return [value for key, value in scope["headers"] if key == name]


def header_value(scope: Scope, name: bytes) -> bytes | None:
    """Return the value of a header, or None without it or with several."""
    values = header_values(scope, name)
    return values[0] if len(values) == 1 else None


def path_of(scope: Scope) -> str:
    """Return the path of a request below the place where the gateway is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def state_of(scope: Scope) -> dict[str, Any]:
    """Return the values that layers and routes keep for a request."""
    state: dict[str, Any] = scope.setdefault("state", {})
    return state
