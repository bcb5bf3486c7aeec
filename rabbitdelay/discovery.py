"""Find the broker: `--url` or an argument, RABBITDELAY_URL, the running private node, localhost.

The private broker is imported only when it is looked for, so a program with a URL does not load it.
"""

import os
from collections.abc import Mapping, Sequence

from rabbitdelay import address
from rabbitdelay.address import Address
from rabbitdelay.engine.administration.local_node import LocalNode

DEFAULT_URL = "amqp://localhost"


def locate_url(url: str | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the broker's URL, or the comma-separated URLs of a cluster."""
    if given := url or environment.get("RABBITDELAY_URL"):
        return given
    from rabbitdelay.private_broker import lookup  # noqa: PLC0415 - see above

    return lookup.running_url(environment) or DEFAULT_URL


def locate(url: str | None = None) -> tuple[Address, ...]:
    """Return the broker's addresses."""
    return address.parse_all(locate_url(url))


def local_node(addresses: Sequence[Address]) -> LocalNode | None:
    """Return the running private node at one of these addresses; None if there is none."""
    ports = {one.port for one in addresses if one.host in address.LOOPBACK_HOSTS}
    if not ports:
        return None
    from rabbitdelay.private_broker import lookup  # noqa: PLC0415 - see above

    return lookup.running_node(ports)
