"""The roster: which other clients of the namespace are alive, by what was heard of them."""

import re

BEAT_SECONDS = 1.0
"""Interval at which a client says that it is alive."""
SILENT_SECONDS = 3.0
"""Time without a sign of life after which a client counts as gone."""
MOST_PEERS = 1_000
"""Maximum number of peers. Any user of the broker can claim to be one."""
_PEER = re.compile(r"[0-9a-f]{16}\.[0-9]{1,9}")


def is_peer(name: object) -> bool:
    """Whether a value has the form of a peer's name."""
    return isinstance(name, str) and _PEER.fullmatch(name) is not None


class Roster:
    """The peers that are alive. Times are seconds on a monotonic clock."""

    def __init__(self) -> None:
        self._heard_at: dict[str, float] = {}

    def heard(self, peer: str, now: float) -> None:
        """Note a sign of life."""
        if peer not in self._heard_at and len(self._heard_at) >= MOST_PEERS:
            self._heard_at = {one: self._heard_at[one] for one in self.living(now)}
            if len(self._heard_at) >= MOST_PEERS:
                return
        self._heard_at[peer] = now

    def gone(self, peer: str) -> None:
        """Note that a peer has left, or that its mailbox does not exist."""
        self._heard_at.pop(peer, None)

    def living(self, now: float) -> list[str]:
        """Return the peers that were heard of recently."""
        return [peer for peer, at in self._heard_at.items() if now - at < SILENT_SECONDS]

    def clear(self) -> None:
        """Forget all peers."""
        self._heard_at.clear()
