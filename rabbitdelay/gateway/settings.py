"""The settings of a gateway: one immutable value, validated once and passed down whole."""

import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from rabbitdelay.core.jobs import validation
from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.gateway.access.tokens import TokenTable

DEFAULT_MAX_REQUEST_BYTES = 8 * 1024 * 1024
DEFAULT_MAX_MEMORY_BYTES = 256 * 1024 * 1024


def _instance_name() -> str:
    """Return a name that no other gateway has, and that tells a person which process it is."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Settings of one gateway.

    Raises:
        InvalidConfiguration: A value is out of range; the error names the setting.
    """

    max_wait: float = 50.0
    """Longest wait of a pop, in seconds. Keep it below the idle timeout of proxies in front."""
    grace: float = 30.0
    """Seconds after SIGTERM in which leases may still be settled; the other jobs then return."""
    put_timeout: float = 10.0
    """Seconds that a put or a delete may take, including reconnects."""
    max_body_bytes: int = validation.DEFAULT_MAX_BODY_BYTES
    """Maximum size of a job's body."""
    max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES
    """Maximum size of a request's body, which may hold many jobs."""
    max_memory_bytes: int = DEFAULT_MAX_MEMORY_BYTES
    """Maximum size of the bodies of all requests that are being served, and again of all jobs that
    clients hold; beyond it, pops are answered 503."""
    body_timeout: float = 30.0
    """Seconds in which the body of a request must arrive."""
    tokens: Callable[[], TokenTable] | None = None
    """Returns the tokens that are accepted now. Without it, every caller may do everything."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names under which the gateway is reached, apart from localhost; `*` for any.

    Without tokens, requests for other names are refused, because a web page can give its own name
    the gateway's address. With tokens they are only refused if this is given.
    """
    instance: str = field(default_factory=_instance_name)
    """Name of this gateway, unique among those that share a broker."""

    def __post_init__(self) -> None:
        for name in ("max_wait", "grace", "put_timeout", "body_timeout"):
            validation.check_timeout(getattr(self, name), name)
        for name in ("max_body_bytes", "max_request_bytes", "max_memory_bytes"):
            validation.check_setting(getattr(self, name), name)
        if self.max_request_bytes < self.max_body_bytes:
            raise InvalidConfiguration(
                f"max_request_bytes ({self.max_request_bytes:,}) must not be less than "
                f"max_body_bytes ({self.max_body_bytes:,})"
            )
