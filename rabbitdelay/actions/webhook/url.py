"""Targets: a URL taken apart into what is resolved, what is connected to and what is asked for.

URLs come from strangers, and one that two programs read differently leads past any check. So only
what has one reading is taken: no user, no backslash, no blank, no `127.1` and no `2130706433`.
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


class InvalidTarget(ValueError):
    """A URL or host that cannot be called; the text says why and shows no part of the URL."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to post to."""

    scheme: Literal["http", "https"]
    host: str
    """In lower case, in ASCII, without a dot at its end; an IPv6 address without brackets."""
    port: int
    path: str
    """What is asked for there, with the query."""

    @property
    def origin(self) -> str:
        """What may be shown of it: paths and queries have secrets in them."""
        return f"{self.scheme}://{self.host_header}"

    @property
    def host_header(self) -> str:
        """The host, with its port unless that is the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def parse(url: str) -> Target:
    """Take a URL apart, or raise InvalidTarget."""
    parts, port = _split(url)
    scheme = _scheme(parts)
    if not _NETLOC.fullmatch(parts.netloc):
        raise InvalidTarget("its host or port cannot be read")
    host = normal_host(parts.hostname or "", is_bracketed="[" in parts.netloc)
    return Target(scheme, host, _port(port, scheme), _path(parts))


def normal_host(host: str, *, is_bracketed: bool) -> str:
    """Return a host in its one form: lower case, ASCII, no dot at its end."""
    if is_bracketed:
        return _ipv6(host)
    name = _ascii(host).lower().removesuffix(".")
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidTarget("its host is no name and no address")
    # Resolvers take 127.1, 0x7f000001 and 2130706433 for addresses; other readers for names.
    if _NUMBER.fullmatch(name.rpartition(".")[2]) and literal_address(name) is None:
        raise InvalidTarget("its host is a number: write an address as four decimal numbers")
    return name


def literal_address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a host is, or None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _split(url: str) -> tuple[SplitResult, int | None]:
    if len(url) > _MAX_URL:
        raise InvalidTarget(f"it is longer than {_MAX_URL:,} characters")
    if _AMBIGUOUS.search(url):
        raise InvalidTarget("it has blanks, control characters or backslashes in it")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # whose text may have a piece of a password in it
        raise InvalidTarget("its host or port cannot be read") from None
    return parts, port


def _scheme(parts: SplitResult) -> Literal["http", "https"]:
    if "@" in parts.netloc:
        raise InvalidTarget("it has a user or a password in it")
    if parts.scheme == "http":
        return "http"
    if parts.scheme == "https":
        return "https"
    raise InvalidTarget("it does not begin with http:// or https://")


def _port(port: int | None, scheme: str) -> int:
    if port is None:
        return DEFAULT_PORTS[scheme]
    if not 1 <= port <= _MAX_PORT:
        raise InvalidTarget(f"its port is not from 1 to {_MAX_PORT}")
    return port


def _path(parts: SplitResult) -> str:
    query = f"?{parts.query}" if parts.query else ""
    return quote((parts.path or "/") + query, safe=_SAFE_IN_PATH, errors="replace")


def _ipv6(host: str) -> str:
    address = literal_address(host)
    if not isinstance(address, IPv6Address) or address.scope_id is not None:
        raise InvalidTarget("what it has in brackets is no IPv6 address")
    return str(address)


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        raise InvalidTarget("its host is no valid international name") from None
