"""Parse a URL into the host to resolve, the port to connect to and the path to request.

URLs are untrusted, and a URL that two programs parse differently can bypass any check. So only
unambiguous URLs are accepted: no user, backslash or blank, and no `127.1` or `2130706433`.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Literal
from urllib.parse import SplitResult, quote, urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_PORT = 65_535
_MAX_NAME = 253
_MAX_URL = 8_000
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f\\]")
_NETLOC = re.compile(r"(?:\[[^\[\]]*\]|[^:\[\]]+)(?::\d*)?")
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_SAFE_IN_PATH = "/%:@!$&'()*+,;=~?"


class InvalidWebhookUrl(ValueError):
    """Raised for an unusable URL or host; the message gives the reason but no part of the URL."""


@dataclass(frozen=True, slots=True)
class WebhookUrl:
    """Parsed URL of a POST request."""

    scheme: Literal["http", "https"]
    host: str
    """Host in lower-case ASCII without a trailing dot; an IPv6 address without brackets."""
    port: int
    path: str
    """Path with the query."""

    @property
    def origin(self) -> str:
        """Part of the URL that may be shown, because paths and queries can contain secrets."""
        return f"{self.scheme}://{self.host_header}"

    @property
    def host_header(self) -> str:
        """Host, with the port unless it is the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def parse(url: str) -> WebhookUrl:
    """Parse a URL, or raise InvalidWebhookUrl."""
    parts, port = _split(url)
    scheme = _scheme(parts)
    if not _NETLOC.fullmatch(parts.netloc):
        raise InvalidWebhookUrl("the host or port is malformed")
    host = normal_host(parts.hostname or "", is_bracketed="[" in parts.netloc)
    return WebhookUrl(scheme, host, _port(port, scheme), _path(parts))


def normal_host(host: str, *, is_bracketed: bool) -> str:
    """Return a host in canonical form: lower-case ASCII without a trailing dot."""
    if is_bracketed:
        return _ipv6(host)
    name = _ascii(host).lower().removesuffix(".")
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidWebhookUrl("the host is not a valid name or address")
    # Resolvers parse 127.1, 0x7f000001 and 2130706433 as addresses; other programs as names.
    if _NUMBER.fullmatch(name.rpartition(".")[2]) and literal_address(name) is None:
        raise InvalidWebhookUrl(
            "the host is a number: write an IPv4 address as four decimal numbers"
        )
    return name


def literal_address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address if the host is one, or None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _split(url: str) -> tuple[SplitResult, int | None]:
    if len(url) > _MAX_URL:
        raise InvalidWebhookUrl(f"the URL is longer than {_MAX_URL:,} characters")
    if _AMBIGUOUS.search(url):
        raise InvalidWebhookUrl("the URL contains blanks, control characters or backslashes")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its message may contain part of a password
        raise InvalidWebhookUrl("the host or port is malformed") from None
    return parts, port


def _scheme(parts: SplitResult) -> Literal["http", "https"]:
    if "@" in parts.netloc:
        raise InvalidWebhookUrl("the URL contains a user or a password")
    if parts.scheme == "http":
        return "http"
    if parts.scheme == "https":
        return "https"
    raise InvalidWebhookUrl("the URL must begin with http:// or https://")


def _port(port: int | None, scheme: str) -> int:
    if port is None:
        return DEFAULT_PORTS[scheme]
    if not 1 <= port <= _MAX_PORT:
        raise InvalidWebhookUrl(f"the port must be from 1 to {_MAX_PORT}")
    return port


def _path(parts: SplitResult) -> str:
    query = f"?{parts.query}" if parts.query else ""
    return quote((parts.path or "/") + query, safe=_SAFE_IN_PATH, errors="replace")


def _ipv6(host: str) -> str:
    address = literal_address(host)
    if not isinstance(address, IPv6Address) or address.scope_id is not None:
        raise InvalidWebhookUrl("the text in brackets is not an IPv6 address")
    return str(address)


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        raise InvalidWebhookUrl("the host is not a valid international name") from None
