"""The layers around the routes, in their order."""

from collections.abc import Callable

from rabbitdelay.gateway.access.authentication import Authentication
from rabbitdelay.gateway.access.caller import known_caller
from rabbitdelay.gateway.access.tokens import TokenTable
from rabbitdelay.gateway.http.access_log import AccessLog
from rabbitdelay.gateway.http.asgi import App, Scope
from rabbitdelay.gateway.http.body_limit import BodyLimit, BodyLimits
from rabbitdelay.gateway.http.origin import OriginCheck
from rabbitdelay.gateway.http.request_id import RequestIds


def surrounded(
    app: App,
    *,
    tokens: Callable[[], TokenTable] | None,
    allowed_hosts: tuple[str, ...],
    body_limits: BodyLimits,
) -> App:
    """Return an application inside its layers.

    A request passes them from the last line to the first. Nothing of a body is read before the
    caller is known.
    """
    app = BodyLimit(app, body_limits)
    app = Authentication(app, tokens)
    # No page has a token, so with tokens a page's own name in Host does it no good.
    app = OriginCheck(app, allowed_hosts, any_host=tokens is not None and not allowed_hosts)
    app = AccessLog(app, _caller_name)
    return RequestIds(app)


def _caller_name(scope: Scope) -> str | None:
    caller = known_caller(scope)
    return None if caller is None else caller.name
