"""Track deleted jobs by the rules of the log. Does not use rabbitdelay.

A tombstone has 32 bytes: the id's 16, a letter, and 15 that select which of its jobs are dead.
"""

import json
from contextlib import suppress
from hashlib import blake2b
from typing import Any
from zlib import crc32

HEAD_BYTES, STONE_BYTES, MAX_MS = 32, 38, 2**48


class TooNew(Exception):
    """Raised for a record of an unknown version: upgrade before processing further jobs."""


def id_key(id: str) -> bytes:
    """Return the 16-byte key of an id."""
    name = id.encode()
    return crc32(name).to_bytes(4, "little") + blake2b(name, digest_size=12).digest()


def order(time_ms: int, token: str | None) -> bytes:
    """Return a time and a token as comparable bytes; None sorts above every token."""
    key = b"" if token is None else blake2b(token.encode(), digest_size=8).digest()
    return moment(time_ms).to_bytes(6, "big") + (b"\0" + key if key else b"\1" + bytes(8))


def moment(time_ms: int) -> int:
    """Return a time in milliseconds; raise ValueError if it is out of range."""
    if not 0 <= time_ms < MAX_MS:
        raise ValueError(f"not in milliseconds since 1970: {time_ms}")
    return time_ms


def exact(id: str, token: str) -> bytes:
    """Return the tombstone of one job by its token, regardless of its put time."""
    return id_key(id) + b"T" + order(0, token)


def of_job(one: str | list[Any], time_ms: int) -> bytes:
    """Return the tombstone of one entry of a delete: an id, or one job with that id."""
    if isinstance(one, str):
        return id_key(one) + b"B" + order(time_ms, None)
    job_id, token, due_ms = one
    moment(due_ms)
    return exact(job_id, token)


class Tombstones:
    """The contents of the log read so far; entries never expire."""

    def __init__(self) -> None:
        self.before: dict[bytes, bytes] = {}  # by id key: jobs with a lower order are dead
        self.exact: set[bytes] = set()
        self.purged_ms: dict[str, int] = {}
        self.switches: dict[str, tuple[int, bool]] = {}  # the last pause or resume of a topic
        self.fence = ""  # the last fence that was read

    def kills(self, topic: str, id: str, token: str, put_ms: int | None) -> bool:
        """Whether a job is dead. A job without a put time survives a purge."""
        if put_ms is not None and put_ms <= self.purged_ms.get(topic, -1):
            return True
        is_old = order(1 if put_ms is None else put_ms, token) < self.before.get(id_key(id), b"")
        return is_old or exact(id, token) in self.exact

    def is_paused(self, topic: str) -> bool:
        """Whether a topic is paused, so that its jobs must not be processed."""
        return self.switches.get(topic, (0, False))[1]

    def read(self, position: int, body: bytes) -> None:
        """Apply the record at a position of the log. Invalid records are ignored."""
        with suppress(ValueError, TypeError, AttributeError):
            if body.startswith(b"RDS1"):
                self._add_piece(body)
            else:
                self._add_record(position, json.loads(body))

    def _add_record(self, position: int, record: dict[str, Any]) -> None:
        if record.get("version", 1) > 1:
            raise TooNew(f"a record of version {record['version']}")
        match record:
            case {"delete": jobs, "time": int(time_ms)}:
                self._add([of_job(one, time_ms) for one in jobs])
            case {"keep": [id, token], "time": int(time_ms), "due": due_ms}:
                moment(due_ms)
                dead = [exact(id, other) for other in record.get("instead_of", [])]
                self._add([id_key(id) + b"B" + order(time_ms, token), *dead])
            case {"purge": str(topic), "time": int(time_ms)}:
                self.purged_ms[topic] = max(moment(time_ms), self.purged_ms.get(topic, 0))
            case {"pause": str(topic), "since": int(since)}:
                if -1 <= since < position:
                    self._switch(topic, since, is_paused=True)
            case {"pause": str(topic)}:
                self._switch(topic, position, is_paused=True)
            case {"resume": str(topic)}:
                self._switch(topic, position, is_paused=False)
            case {"fence": str(nonce)}:
                self.fence = nonce

    def _switch(self, topic: str, position: int, *, is_paused: bool) -> None:
        if position > self.switches.get(topic, (-1, False))[0]:
            self.switches[topic] = (position, is_paused)

    def _add_piece(self, body: bytes) -> None:
        checksum, stones = body[16:HEAD_BYTES], body[HEAD_BYTES:]
        if blake2b(stones, digest_size=16).digest() == checksum:
            self._add([stones[at : at + 32] for at in range(0, len(stones), STONE_BYTES)])

    def _add(self, stones: list[bytes]) -> None:
        for stone in stones:
            key, kind, reach = stone[:16], stone[16:17], stone[17:]
            if kind == b"T":
                self.exact.add(stone)
            else:
                self.before[key] = max(reach, self.before.get(key, b""))
