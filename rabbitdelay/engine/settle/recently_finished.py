"""Remember the attempts that this process finished most recently.

An ack is not confirmed. If the connection is lost right after an ack, the broker may redeliver the
job to this process, which need not run it again.
"""

from collections import OrderedDict

from rabbitdelay.core.consume.leases import Identity

MOST = 10_000


class RecentlyFinished:
    """The most recently finished attempts, at most MOST.

    Jobs of other programs that have no token are not remembered, because they cannot be told apart.
    """

    def __init__(self) -> None:
        self._identities: OrderedDict[Identity, None] = OrderedDict()

    def add(self, identity: Identity) -> None:
        """Add an attempt, and remove the oldest one if there are too many."""
        if identity[2]:
            self._identities[identity] = None
            if len(self._identities) > MOST:
                self._identities.popitem(last=False)

    def __contains__(self, identity: Identity) -> bool:
        return identity in self._identities
