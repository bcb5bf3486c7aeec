"""Access tokens: they are stored as hashes, and compared in constant time.

A hash without salt or repetition is enough, because a token that `new_token` returns has 256 random
bits. It would not be enough for a password that a person has chosen.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date

from rabbitdelay.gateway.access.rights import Grant

PREFIX = "rdt_"
"""Beginning of every generated token, by which scanners for leaked secrets can recognise one."""
_RANDOM_BYTES = 32


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is stored: what it grants, and to which name."""

    name: str
    grant: Grant
    digest: bytes = field(repr=False)
    """SHA-256 of the token."""
    last_day: date | None = None
    """Last day, in UTC, on which the token is accepted."""

    def is_expired(self, today: date) -> bool:
        """Whether the token is no longer accepted."""
        return self.last_day is not None and today > self.last_day


class TokenTable:
    """All tokens that a gateway accepts."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self._tokens = tuple(tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def find(self, text: bytes, today: date) -> Token | None:
        """Return the token whose text this is, unless it has expired.

        Every entry is compared in constant time, and none ends the search, so that the time tells
        a caller neither how much of a guess is right nor which entry it is like.
        """
        digest = digest_of(text)
        found: Token | None = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token
        return None if found is None or found.is_expired(today) else found


def new_token() -> str:
    """Return the text of a new random token."""
    return PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def digest_of(text: bytes) -> bytes:
    """Return the SHA-256 of a token's text."""
    return hashlib.sha256(text).digest()
