"""Broker addresses: AMQP URLs, parsed and checked.

Errors and `str()` never contain the password.
"""

import ssl
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

from rabbitdelay.errors import InvalidConfiguration

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}
_UNREADABLE = (
    "the broker URL cannot be parsed: check that the port is a number and that every / # ? , @ in "
    "the user, the password and the vhost is percent-encoded"
)
_COMMON_MISTAKES = {"http", "https", "redis", "beanstalk", "mqtt", "stomp", "tcp"}
"""Schemes that an error may show. Any other text before a colon may be part of a password."""
_OPTIONS = {"heartbeat", "connection_timeout", "cacertfile", "certfile", "keyfile", "server_name"}


@dataclass(frozen=True, slots=True)
class Address:
    """The address, the credentials and the connection options of one broker."""

    scheme: Literal["amqp", "amqps"]
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    vhost: str
    heartbeat_seconds: int = 30
    connection_timeout_seconds: float = 10.0
    cacertfile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    server_name: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        vhost = "" if self.vhost == "/" else f"/{self.vhost}"
        return f"{self.scheme}://{self.user}:***@{host}:{self.port}{vhost}"

    @property
    def is_default(self) -> bool:
        """Whether this is the address of clients that have no URL and find no private broker."""
        return self.host in LOOPBACK_HOSTS and self.port == _DEFAULT_PORTS["amqp"]

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings of an amqps address, with certificate and host name checks."""
        if self.scheme == "amqp":
            return None
        try:
            context = ssl.create_default_context(cafile=self.cacertfile)
            if self.certfile:
                context.load_cert_chain(self.certfile, self.keyfile)
        except OSError as error:
            raise InvalidConfiguration(f"cannot read the TLS files of {self}: {error}") from None
        return context


def parse(url: str) -> Address:
    """Parse an AMQP URL; errors explain the mistake without showing the password."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:  # its text may contain a part of the password
        raise InvalidConfiguration(_UNREADABLE) from None
    if "@" in parts.path or parts.fragment:
        raise InvalidConfiguration(_UNREADABLE)
    scheme = _scheme(parts.scheme)
    options = _options(parts.query)
    return Address(
        scheme,
        parts.hostname or "localhost",
        port or _DEFAULT_PORTS[scheme],
        unquote(parts.username or "guest"),
        unquote(parts.password or "guest"),
        # `amqp://host` and `amqp://host/` both mean the default vhost, as in other clients.
        unquote(parts.path[1:]) or "/",
        int(_number(options, "heartbeat", 30)),
        _number(options, "connection_timeout", 10),
        options.get("cacertfile"),
        options.get("certfile"),
        options.get("keyfile"),
        options.get("server_name"),
    )


def _scheme(scheme: str) -> Literal["amqp", "amqps"]:
    if scheme == "amqp":
        return "amqp"
    if scheme == "amqps":
        return "amqps"
    found = f", not {scheme}://" if scheme in _COMMON_MISTAKES else ""
    raise InvalidConfiguration(f"the broker URL must begin with amqp:// or amqps://{found}")


def parse_all(urls: str) -> tuple[Address, ...]:
    """Parse one URL, or the comma-separated URLs of the nodes of a cluster."""
    if not isinstance(urls, str):
        raise InvalidConfiguration(f"the broker URL must be text, not {type(urls).__name__}")
    addresses = tuple(parse(url) for url in urls.split(",") if url.strip())
    if not addresses:
        raise InvalidConfiguration("the broker URL is empty: set one like amqp://user@host:5672")
    return addresses


def _options(query: str) -> dict[str, str]:
    options = {name: values[-1] for name, values in parse_qs(query).items()}
    if unknown := options.keys() - _OPTIONS:
        raise InvalidConfiguration(
            f"the broker URL has unknown options ({len(unknown)}): use only "
            f"{', '.join(sorted(_OPTIONS))}, and percent-encode every ? and & in the password"
        )
    return options


def _number(options: dict[str, str], name: str, default: float) -> float:
    try:
        return float(options.get(name, default))
    except ValueError:
        raise InvalidConfiguration(f"{name} in the broker URL must be a number") from None
