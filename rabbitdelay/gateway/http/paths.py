"""Paths: ids of jobs in them, which may contain any character, even an encoded slash."""

from urllib.parse import unquote_to_bytes

from rabbitdelay.gateway.http.asgi import App, Receive, Scope, Send
from rabbitdelay.gateway.problems import MalformedRequest, response_to

_SLASH = "\x00"
"""Stands for an encoded slash while a path is matched. No id, topic or route contains it."""


def id_in_path(segment: str) -> str:
    """Return the id in a segment of a path."""
    return segment.replace(_SLASH, "/")


class Paths:
    """Decodes each segment of a path by itself, so that `a%2Fb` is one segment.

    A path that is not UTF-8 is refused, because its id would be another one after decoding.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its decoded path."""
        raw = scope.get("raw_path")
        if scope["type"] != "http" or not raw or b"%" not in raw:
            await self._app(scope, receive, send)
            return
        try:
            # In place, so that the layers outside see the route that is found for it.
            scope["path"] = _decoded(raw.partition(b"?")[0])
        except ValueError:
            response = response_to(MalformedRequest("the path is not UTF-8, or has a NUL"))
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _decoded(raw: bytes) -> str:
    return "/".join(map(_segment, raw.split(b"/")))


def _segment(raw: bytes) -> str:
    text = unquote_to_bytes(raw).decode()
    if _SLASH in text:
        raise ValueError("NUL in a path")
    return text.replace("/", _SLASH)
