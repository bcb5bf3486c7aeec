"""The allow list: where a job's own callback may lead.

Whoever puts a job chooses its callback, and the consumer that calls it stands inside a network.

1. Only hosts that the operator named are called.
2. They are called at addresses of the public internet, unless the operator allows private ones:
   a name of a stranger may resolve to anything. What was checked is what is connected to.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Self

from rabbitdelay.actions.webhook.url import DEFAULT_PORTS, InvalidTarget, Target, normal_host
from rabbitdelay.errors import Bury, InvalidConfiguration

IPAddress = IPv4Address | IPv6Address

_PATTERN = re.compile(
    r"(?P<wild>\*(?:\.|(?=:|$)))?(?P<host>\[.*\]|[^:/\[\]]*)(?::(?P<port>[0-9]{1,5}|\*))?"
)
_MAX_PORT = 65_535

_GLOBAL_IPV6 = IPv6Network("2000::/3")
"""Whatever is outside is not the internet, or is an IPv4 address in disguise."""
_NOT_PUBLIC = (
    IPv4Network("192.0.0.0/24"),  # special assignments
    IPv4Network("192.88.99.0/24"),  # relays to 6to4
    IPv6Network("2001::/23"),  # special assignments, and Teredo, which has an IPv4 address in it
    IPv6Network("2002::/16"),  # 6to4, which has an IPv4 address in it
)


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """A host, or all hosts under one, on one port or on any or on the scheme's usual one."""

    host: str
    """Empty with `is_wild`: every host."""
    port: int | None
    """None is the scheme's usual one."""
    is_wild: bool = False
    """Whether what is under the host is meant, and not the host itself."""
    is_any_port: bool = False

    @classmethod
    def parse(cls, pattern: str) -> Self:
        """Read `example.com`, `*.example.com`, `example.com:8443`, `[::1]:*` or `*`."""
        match = _PATTERN.fullmatch(pattern.strip())
        if match is None or not (match["host"] or match["wild"] == "*"):
            raise _bad(
                pattern, "write a host, with a port if need be, such as api.example.com:8443"
            )
        host = _host(match["host"], pattern) if match["host"] else ""
        return cls(host, _port(match["port"], pattern), bool(match["wild"]), match["port"] == "*")

    def allows(self, target: Target) -> bool:
        """Whether a target is meant."""
        port = DEFAULT_PORTS[target.scheme] if self.port is None else self.port
        return self._names(target.host) and (self.is_any_port or target.port == port)

    def _names(self, host: str) -> bool:
        if not self.is_wild:
            return host == self.host
        return not self.host or host.endswith(f".{self.host}")


@dataclass(frozen=True, slots=True)
class AllowList:
    """The hosts that callbacks may lead to; an empty one allows none."""

    hosts: tuple[AllowedHost, ...] = ()
    allow_private: bool = False

    @classmethod
    def parse(cls, patterns: Iterable[str], *, allow_private: bool = False) -> Self:
        """Read what the operator gave as `--allow-host` and `--allow-private`."""
        return cls(tuple(AllowedHost.parse(pattern) for pattern in patterns), allow_private)

    def check_host(self, target: Target) -> None:
        """Bury the job whose callback leads to a host that is not listed."""
        if not any(host.allows(target) for host in self.hosts):
            raise Bury(
                f"the job's callback leads to {target.origin}, which is not allowed: to allow it, "
                f"give the consumer --allow-host {target.host_header}"
            )

    def check_addresses(self, target: Target, addresses: Sequence[IPAddress]) -> None:
        """Bury the job whose callback leads to any address that is not public."""
        private = [address for address in addresses if not is_public(address)]
        if private and not self.allow_private:
            raise Bury(
                f"the job's callback leads to {target.origin}, which is at {private[0]}, no public "
                "address: to allow such, give the consumer --allow-private"
            )


def is_public(address: IPAddress) -> bool:
    """Whether an address is one host of the public internet and cannot be anything else."""
    if isinstance(address, IPv6Address) and address not in _GLOBAL_IPV6:
        return False
    special = address.is_multicast or address.is_reserved or not address.is_global
    return not special and not any(address in network for network in _NOT_PUBLIC)


def _host(text: str, pattern: str) -> str:
    try:
        return normal_host(text.strip("[]"), is_bracketed=text.startswith("["))
    except InvalidTarget as error:
        raise _bad(pattern, str(error)) from None


def _port(text: str | None, pattern: str) -> int | None:
    if text is None or text == "*":
        return None
    if not 1 <= int(text) <= _MAX_PORT:
        raise _bad(pattern, f"its port is not from 1 to {_MAX_PORT}")
    return int(text)


def _bad(pattern: str, reason: str) -> InvalidConfiguration:
    return InvalidConfiguration(f"{pattern!r} is no host to allow: {reason}")
