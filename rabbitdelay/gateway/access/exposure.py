"""Refuse to listen where programs without a token could connect from other machines."""

import ipaddress

from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.gateway.access.token_file import ENVIRONMENT_VARIABLE


def require_protection(address: str, *, has_tokens: bool, insecure: bool) -> None:
    """Raise InvalidConfiguration if an address is not loopback, and nothing protects it.

    Args:
        address: The address to listen on, after its name was looked up.
        has_tokens: Whether callers need a token.
        insecure: Whether the operator has accepted that they need none.
    """
    if has_tokens or insecure or is_loopback(address):
        return
    raise InvalidConfiguration(
        f"without tokens, anyone who can reach {address} could read, change and delete jobs: give "
        f"--tokens FILE or set {ENVIRONMENT_VARIABLE} (`rabbitdelay token` makes a token), listen "
        "on 127.0.0.1, or give --insecure to accept that"
    )


def is_loopback(address: str) -> bool:
    """Whether only this machine can connect to an address."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
