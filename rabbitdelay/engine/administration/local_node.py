"""A broker node on this machine, with the facts that are available only locally.

`rabbitdelay.discovery` finds the node. The engine receives the function as an argument, because
the private broker is in a layer above.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rabbitdelay.address import Address
from rabbitdelay.core.doctor.facts import BrokerSettings


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node that `rabbitdelay broker` started."""

    management_url: str
    read_settings: Callable[[], BrokerSettings]
    """Reads the settings from the node, in about a second; raises BrokerProcessError."""


FindLocalNode = Callable[[Sequence[Address]], LocalNode | None]
"""Returns the local node that one of these addresses refers to; None if there is none."""
