"""The broker's address: an AMQP URL, taken apart, whose password is never shown."""

import ssl
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

from rabbitdelay.errors import InvalidConfiguration

_DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}
_UNREADABLE = (
    "the broker URL cannot be read: is the port a number, and is every / # ? , @ in the user, the "
    "password and the vhost percent-encoded?"
)
_COMMON_MISTAKES = {"http", "https", "redis", "beanstalk", "mqtt", "stomp", "tcp"}
"""What may be shown: anything else before a colon may be a piece of a password."""
_OPTIONS = {"heartbeat", "connection_timeout", "cacertfile", "certfile", "keyfile", "server_name"}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker is and how to get in."""

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

    def tls_context(self) -> ssl.SSLContext | None:
        """The TLS settings of an amqps address: certificates and host names are checked."""
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
    """Take an AMQP URL apart, or say what is wrong with it without showing its password."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:  # whose text may have a piece of the password in it
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
        # `amqp://host` and `amqp://host/` both mean the default vhost, as everybody expects.
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
    """Take apart one URL, or several of the nodes of a cluster with commas between them."""
    if not isinstance(urls, str):
        raise InvalidConfiguration(f"the broker URL must be text, not {type(urls).__name__}")
    addresses = tuple(parse(url) for url in urls.split(",") if url.strip())
    if not addresses:
        raise InvalidConfiguration("the broker URL is empty")
    return addresses


def _options(query: str) -> dict[str, str]:
    options = {name: values[-1] for name, values in parse_qs(query).items()}
    if unknown := options.keys() - _OPTIONS:
        raise InvalidConfiguration(
            f"the broker URL has {len(unknown)} unknown options: known are "
            f"{', '.join(sorted(_OPTIONS))}. Is every ? and & in the password percent-encoded?"
        )
    return options


def _number(options: dict[str, str], name: str, default: float) -> float:
    try:
        return float(options.get(name, default))
    except ValueError:
        raise InvalidConfiguration(f"{name} in the broker URL must be a number") from None
