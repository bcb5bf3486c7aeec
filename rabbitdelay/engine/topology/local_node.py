"""A broker node that runs on this machine, and what only the machine knows about it.

`rabbitdelay.discovery` finds it. The engine is given the function, because the private broker is
a layer above.
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
    """Asks the node, which takes about a second; raises BrokerProcessError."""


FindLocalNode = Callable[[Sequence[Address]], LocalNode | None]
"""Returns the node that one of these addresses means, if it is a local one."""
