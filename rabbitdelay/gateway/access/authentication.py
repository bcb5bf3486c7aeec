"""Identify the caller of every request, before anything but its headers is read."""

from collections.abc import Callable
from datetime import UTC, datetime

from rabbitdelay.gateway.access.caller import ANONYMOUS, Caller, remember_caller
from rabbitdelay.gateway.access.tokens import TokenTable
from rabbitdelay.gateway.http.asgi import App, Receive, Scope, Send, header_values, path_of
from rabbitdelay.gateway.problems import TokenRequired, response_to

PUBLIC_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths that need no token: load balancers have none, and the answers tell nothing of jobs."""
MAX_TOKEN_BYTES = 512
_SCHEME = b"bearer"


class Authentication:
    """An ASGI layer that refuses requests without a valid token.

    Every path needs one except the public ones, so that a route cannot be left open by mistake.
    """

    def __init__(self, app: App, tokens: Callable[[], TokenTable] | None) -> None:
        """Accept the tokens that `tokens` returns at the time; without it, every caller."""
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            caller = self._caller(scope)
        except TokenRequired as error:
            await response_to(error)(scope, receive, send)
            return
        if caller is not None:
            remember_caller(scope, caller)
        await self._app(scope, receive, send)

    def _caller(self, scope: Scope) -> Caller | None:
        if self._tokens is None:
            return ANONYMOUS
        given = header_values(scope, b"authorization")
        if not given and path_of(scope) in PUBLIC_PATHS:
            return None
        token = self._tokens().find(_token_text(given), datetime.now(UTC).date())
        if token is None:
            raise TokenRequired("the token is not valid: it is unknown or has expired")
        return Caller(token.name, token.grant)


def _token_text(values: list[bytes]) -> bytes:
    if not values:
        raise TokenRequired("this request needs a token: send Authorization: Bearer TOKEN")
    if len(values) > 1:
        raise TokenRequired("the request has several Authorization headers: send one")
    scheme, _, text = values[0].partition(b" ")
    text = text.strip()
    if scheme.lower() != _SCHEME or not text:
        raise TokenRequired("the Authorization header must be of the form Bearer TOKEN")
    if len(text) > MAX_TOKEN_BYTES:
        raise TokenRequired("the token is not valid: it is too long")
    return text
