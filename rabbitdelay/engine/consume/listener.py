"""Users: who takes something over a consuming connection, and is told what happens to it."""

from collections.abc import Sequence
from typing import Protocol

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.work.retry import Fate
from rabbitdelay.errors import ConnectionFailed


class User(Protocol):
    """Who takes jobs over the connection; everything on the wire's thread."""

    def connected(self) -> None:
        """There is a connection, with nothing on it yet."""

    def disconnected(self, error: ConnectionFailed, lost: Sequence[Lease]) -> None:
        """It is gone, and these leases with it."""

    def channel_lost(self, number: int, error: Exception, lost: Sequence[Lease]) -> None:
        """The broker closed one channel, and these leases are gone with it."""

    def expired(self, expired: Sequence[tuple[Lease, Fate]]) -> None:
        """These have reached their deadlines, and are being given back."""

    def read(self) -> None:
        """All that came at once has been handed over."""

    def closed(self) -> None:
        """Nothing will come any more. Told when closing begins, and again when all has ended."""


class Users:
    """Several users of one connection, who are all told everything."""

    def __init__(self, *users: User) -> None:
        self._users = users

    def connected(self) -> None:
        """There is a connection."""
        for user in self._users:
            user.connected()

    def disconnected(self, error: ConnectionFailed, lost: Sequence[Lease]) -> None:
        """It is gone."""
        for user in self._users:
            user.disconnected(error, lost)

    def channel_lost(self, number: int, error: Exception, lost: Sequence[Lease]) -> None:
        """The broker closed one channel."""
        for user in self._users:
            user.channel_lost(number, error, lost)

    def expired(self, expired: Sequence[tuple[Lease, Fate]]) -> None:
        """These have reached their deadlines."""
        for user in self._users:
            user.expired(expired)

    def read(self) -> None:
        """All that came at once has been handed over."""
        for user in self._users:
            user.read()

    def closed(self) -> None:
        """Nothing will come any more."""
        for user in self._users:
            user.closed()
