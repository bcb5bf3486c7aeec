"""The allow list: the hosts that a job's callback may refer to.

The client that puts a job chooses its callback, but the consumer that calls it runs inside a
network. This file owns two rules:

1. Only hosts that the operator listed are called.
2. Unless the operator allows private addresses, hosts are called only at public addresses, because
   a foreign name can resolve to any address. The checked address is the one connected to.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Self

from rabbitdelay.actions.webhook.url import (
    DEFAULT_PORTS,
    InvalidWebhookUrl,
    WebhookUrl,
    normal_host,
)
from rabbitdelay.errors import Bury, InvalidConfiguration

IPAddress = IPv4Address | IPv6Address

_PATTERN = re.compile(
    r"(?P<wild>\*(?:\.|(?=:|$)))?(?P<host>\[.*\]|[^:/\[\]]*)(?::(?P<port>[0-9]{1,5}|\*))?"
)
_MAX_PORT = 65_535

_GLOBAL_IPV6 = IPv6Network("2000::/3")
"""Addresses outside this network are not public, or embed an IPv4 address."""
_NOT_PUBLIC = (
    IPv4Network("192.0.0.0/24"),  # special assignments
    IPv4Network("192.88.99.0/24"),  # relays to 6to4
    IPv6Network("2001::/23"),  # special assignments, and Teredo, which embeds an IPv4 address
    IPv6Network("2002::/16"),  # 6to4, which embeds an IPv4 address
)


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """A host or all its subdomains, on one port, any port or the scheme's default port."""

    host: str
    """Host name or address; empty with `is_wild` for every host."""
    port: int | None
    """Port; None means the scheme's default port."""
    is_wild: bool = False
    """Whether the entry stands for the subdomains of the host instead of the host itself."""
    is_any_port: bool = False

    @classmethod
    def parse(cls, pattern: str) -> Self:
        """Parse `example.com`, `*.example.com`, `example.com:8443`, `[::1]:*` or `*`."""
        match = _PATTERN.fullmatch(pattern.strip())
        if match is None or not (match["host"] or match["wild"] == "*"):
            raise _invalid(
                pattern, "write a host with an optional port, such as api.example.com:8443"
            )
        host = _host(match["host"], pattern) if match["host"] else ""
        return cls(host, _port(match["port"], pattern), bool(match["wild"]), match["port"] == "*")

    def allows(self, url: WebhookUrl) -> bool:
        """Whether this entry allows the url."""
        port = DEFAULT_PORTS[url.scheme] if self.port is None else self.port
        return self._names(url.host) and (self.is_any_port or url.port == port)

    def _names(self, host: str) -> bool:
        if not self.is_wild:
            return host == self.host
        return not self.host or host.endswith(f".{self.host}")


@dataclass(frozen=True, slots=True)
class AllowList:
    """The hosts that callbacks may refer to; an empty list allows none."""

    hosts: tuple[AllowedHost, ...] = ()
    allow_private: bool = False

    @classmethod
    def parse(cls, patterns: Iterable[str], *, allow_private: bool = False) -> Self:
        """Parse the operator's values of `--allow-host` and `--allow-private`."""
        return cls(tuple(AllowedHost.parse(pattern) for pattern in patterns), allow_private)

    def check_host(self, url: WebhookUrl) -> None:
        """Raise `Bury` if the callback refers to a host that is not listed."""
        if not any(host.allows(url) for host in self.hosts):
            raise Bury(
                f"the job's callback refers to {url.origin}, which is not allowed: to allow it, "
                f"start the consumer with --allow-host {url.host_header}"
            )

    def check_addresses(self, url: WebhookUrl, addresses: Sequence[IPAddress]) -> None:
        """Raise `Bury` if the callback's host has any address that is not public."""
        private = [address for address in addresses if not is_public(address)]
        if private and not self.allow_private:
            raise Bury(
                f"the job's callback refers to {url.origin}, which resolves to {private[0]}, "
                "not a public address: to allow private addresses, start the consumer with "
                "--allow-private"
            )


def is_public(address: IPAddress) -> bool:
    """Whether an address is that of a single host on the public internet."""
    if isinstance(address, IPv6Address) and address not in _GLOBAL_IPV6:
        return False
    special = address.is_multicast or address.is_reserved or not address.is_global
    return not special and not any(address in network for network in _NOT_PUBLIC)


def _host(text: str, pattern: str) -> str:
    try:
        return normal_host(text.strip("[]"), is_bracketed=text.startswith("["))
    except InvalidWebhookUrl as error:
        raise _invalid(pattern, str(error)) from None


def _port(text: str | None, pattern: str) -> int | None:
    if text is None or text == "*":
        return None
    if not 1 <= int(text) <= _MAX_PORT:
        raise _invalid(pattern, f"the port must be from 1 to {_MAX_PORT}")
    return int(text)


def _invalid(pattern: str, reason: str) -> InvalidConfiguration:
    return InvalidConfiguration(f"{pattern!r} is not a host to allow: {reason}")
