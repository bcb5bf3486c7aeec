"""Remembered: the attempts that were finished here a moment ago.

An ack is not confirmed. When the connection is lost right after one, the broker may hand the job
out again: to this process, which need not do it twice.
"""

from collections import OrderedDict

from rabbitdelay.core.consume.leases import Identity

MOST = 10_000


class Remembered:
    """The newest so many attempts; foreign jobs without a token cannot be told apart."""

    def __init__(self) -> None:
        self._identities: OrderedDict[Identity, None] = OrderedDict()

    def add(self, identity: Identity) -> None:
        """Remember it, and forget the oldest when there are too many."""
        if identity[2]:
            self._identities[identity] = None
            if len(self._identities) > MOST:
                self._identities.popitem(last=False)

    def __contains__(self, identity: Identity) -> bool:
        return identity in self._identities
