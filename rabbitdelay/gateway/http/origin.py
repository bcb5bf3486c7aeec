"""Refuse requests that a web page makes a browser send, to a gateway that the browser can reach.

A gateway without tokens trusts every program that can connect to it. On a developer's machine that
includes every web page that is open in a browser there:

- A page can send a request to another address (cross-site request forgery). Browsers say so in
  `Sec-Fetch-Site`, and older ones in `Origin`.
- A page can give its own name the address 127.0.0.1 (DNS rebinding). Then the browser takes the
  gateway for the page's own server, but `Host` still has the page's name.

The gateway sends no CORS headers, so that no page can read an answer either.
"""

import ipaddress
import re
from urllib.parse import urlsplit

from rabbitdelay.gateway.http.asgi import App, Receive, Scope, Send, header_values
from rabbitdelay.gateway.problems import Kind, Refusal, response_to

ANY_HOST = "*"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]/?#@\s]+)(?::([0-9]{1,5}))?")
_OWN_SITES = {b"same-origin", b"none"}
_DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST_DETAIL = (
    "the Host header names a host that this gateway does not serve: start it with --allowed-host "
    "NAME to allow it"
)
_SITE_DETAIL = "requests that a web page of another origin sends are not accepted"


class HostRefused(Refusal):
    """The request's Host is not one of this gateway."""

    kind = Kind(421, "This gateway does not serve this host")


class CrossSiteRefused(Refusal):
    """A web page of another origin has sent the request."""

    kind = Kind(403, "Requests from other web pages are refused")


class OriginCheck:
    """An ASGI layer that refuses requests from web pages of other origins."""

    def __init__(self, app: App, allowed_hosts: tuple[str, ...] = (), *, any_host: bool) -> None:
        """Allow these host names, and addresses and localhost; with `any_host`, all names.

        An address in `Host` needs no permission: the page of a rebinding attack has a name.
        """
        self._app = app
        self._any_host = any_host or ANY_HOST in allowed_hosts
        self._allowed = {name.lower().rstrip(".") for name in ("localhost", *allowed_hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif not self._accepts_host(scope):
            await response_to(HostRefused(_HOST_DETAIL))(scope, receive, send)
        elif not _is_of_own_site(scope):
            await response_to(CrossSiteRefused(_SITE_DETAIL))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _accepts_host(self, scope: Scope) -> bool:
        if self._any_host:
            return True
        host = _host(scope)
        return host is not None and (host[0] in self._allowed or _is_address(host[0]))


def _is_of_own_site(scope: Scope) -> bool:
    """Whether no browser says that another origin's page has sent the request."""
    if any(value.lower() not in _OWN_SITES for value in header_values(scope, b"sec-fetch-site")):
        return False
    return all(_is_own_origin(scope, value) for value in header_values(scope, b"origin"))


def _is_own_origin(scope: Scope, value: bytes) -> bool:
    """Whether an Origin has the host and port of Host; the scheme may be that of a proxy."""
    host = _host(scope)
    try:
        origin = urlsplit(value.decode("ascii"))
        default = _DEFAULT_PORTS[origin.scheme]
        port = origin.port
    except (ValueError, KeyError):  # `null`, for example
        return False
    if host is None or origin.hostname is None:
        return False
    return (origin.hostname, port or default) == (host[0], host[1] or default)


def _host(scope: Scope) -> tuple[str, int | None] | None:
    """Return the name and the port in Host, or None if there is not exactly one valid Host."""
    values = header_values(scope, b"host")
    match = _HOST.fullmatch(values[0].decode("latin-1")) if len(values) == 1 else None
    if not match:
        return None
    name = match[1].lower().rstrip(".").strip("[]")
    return name, int(match[2]) if match[2] else None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
