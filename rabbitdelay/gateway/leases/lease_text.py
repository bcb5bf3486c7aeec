"""The text by which a client over HTTP names the job that it has popped.

The text is opaque to clients, and safe in a URL. It has everything that another gateway needs if
the one that holds the job is gone. A client can write any text, so reading one checks every field.
What protects a job from other clients are the token and the nonce, which cannot be guessed.
"""

import base64
import binascii
import json
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any

from rabbitdelay.core.deletes.records import MAX_MS
from rabbitdelay.core.jobs import validation
from rabbitdelay.core.peers.roster import is_peer
from rabbitdelay.errors import InvalidJob

VERSION = "1"
REMEMBERED = 1_000
"""Number of texts that are decoded once, although their rights are checked before they are used: as
many as one request may have."""
MAX_CHARACTERS = 3_000
MAX_TOKEN_CHARACTERS = 64
NONCE_CHARACTERS = 16


class NotALease(InvalidJob):
    """A text is not a lease."""


@dataclass(frozen=True, slots=True)
class LeaseText:
    """The fields in the text of a lease."""

    peer: str
    """The gateway that holds the job."""
    topic: str
    id: str
    token: str
    """Random text of the job's put; empty if another program has put the job."""
    put_ms: int
    due_ms: int
    attempt: int
    deadline_ms: int
    """End of the ttr, in milliseconds since 1970, by the clock of the gateway that wrote it."""
    nonce: str
    """Random text of this lease."""

    def encode(self) -> str:
        """Return the text."""
        content = _ENCODER.encode(_values(self)).encode()
        return f"{VERSION}.{base64.urlsafe_b64encode(content).decode().rstrip('=')}"


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_values = attrgetter(*(field.name for field in fields(LeaseText)))
"""Returns the fields as a tuple; dataclasses.astuple, which copies each of them, takes 20 us."""


@lru_cache(maxsize=REMEMBERED)
def decode(text: str) -> LeaseText:
    """Return what a text says; raise NotALease if it is not the text of a lease."""
    if len(text) > MAX_CHARACTERS:
        raise NotALease("the lease is too long: give it exactly as the pop returned it")
    version, _, encoded = text.partition(".")
    if version != VERSION:
        raise NotALease("not a lease of this version: give it exactly as the pop returned it")
    try:
        lease = _read(_list(encoded))
    except (InvalidJob, ValueError, RecursionError):
        raise NotALease("not a lease: give it exactly as the pop returned it") from None
    if lease.encode() != text:
        raise NotALease("not a lease: give it exactly as the pop returned it")
    return lease


def _list(encoded: str) -> list[Any]:
    try:
        padded = encoded + "=" * (-len(encoded) % 4)
        found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except binascii.Error as error:
        raise NotALease(str(error)) from None
    if not isinstance(found, list):
        raise NotALease("not a list")
    return found


def _read(values: list[Any]) -> LeaseText:
    peer, topic, job_id, token, put_ms, due_ms, attempt, deadline_ms, nonce = values
    if not is_peer(peer):
        raise NotALease("the gateway")
    return LeaseText(
        peer,
        validation.check_topic(topic),
        validation.check_id(job_id),
        _text(token, MAX_TOKEN_CHARACTERS),
        _time(put_ms),
        _time(due_ms),
        _integer(attempt, 1, 1 << 63),
        _time(deadline_ms),
        _text(nonce, NONCE_CHARACTERS),
    )


def _text(value: object, most: int) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise NotALease("a text")
    value.encode()
    return value


def _time(value: object) -> int:
    return _integer(value, 0, MAX_MS)


def _integer(value: object, least: int, below: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < below:
        raise NotALease("a number")
    return value
