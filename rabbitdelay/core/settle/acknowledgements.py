"""Choose the finished messages of a channel to acknowledge, and the frames that do so.

This file owns three rules:

1. A message is acknowledged only after it has finished, and exactly once.
2. All messages up to the oldest unfinished one are acknowledged by one frame, with `multiple`.
3. A message that finished out of order waits for a moment, because the gap before it usually
   closes. It waits only while the waiting messages are a small part of the prefetch, and never for
   long.

Delivery tags count up from 1 on each channel. Times are seconds on a monotonic clock.
"""

from collections.abc import Iterable, Iterator

MAX_WAIT_SECONDS = 0.01
"""Maximum time for which a message that finished out of order waits for those before it."""
WAITING_SHARE = 4
"""At most one in this many unacknowledged messages waits."""

Frame = tuple[int, bool]
"""A delivery tag, and whether the frame acknowledges all tags up to it."""


class Acks:
    """The unacknowledged messages of one channel."""

    def __init__(self) -> None:
        self._unsettled: dict[int, None] = {}  # in the order of their tags
        self._last_tag = 0
        self._finished: set[int] = set()
        self._waits_until: float | None = None

    def __len__(self) -> int:
        return len(self._unsettled)

    @property
    def is_any_waiting(self) -> bool:
        """Whether finished messages are waiting for those before them."""
        return self._waits_until is not None

    def delivered(self, tag: int) -> None:
        """Record a delivery. A skipped tag counts as unfinished."""
        for unsettled in range(self._last_tag + 1, tag + 1):
            self._unsettled[unsettled] = None
        self._last_tag = tag

    def finished(self, tag: int) -> None:
        """Record that a message is to be acknowledged."""
        if tag in self._unsettled:
            self._finished.add(tag)

    def settled(self, tag: int) -> None:
        """Record that a nack settles a message.

        The nack must be sent before the frames of `take`.
        """
        self._unsettled.pop(tag, None)

    def take(self, now: float, *, everything: bool = False) -> Iterator[Frame]:
        """Yield the frames to send now; with `everything`, no message waits."""
        prefix = self._take_prefix()
        if prefix is not None:
            yield prefix, True
        if everything or not self._may_wait(now):
            for tag in self._take_rest():
                yield tag, False

    def _take_prefix(self) -> int | None:
        """Remove the finished messages before the oldest unfinished one; return the last of them.

        The broker refuses a tag that it does not know, even with `multiple`, so the tag must belong
        to one of the messages that this frame acknowledges.
        """
        if not self._finished:
            return None
        done: list[int] = []
        for tag in self._unsettled:
            if tag not in self._finished:
                break
            done.append(tag)
        self._remove(done)
        return done[-1] if done else None

    def _take_rest(self) -> list[int]:
        rest = sorted(self._finished)
        self._remove(rest)
        self._waits_until = None
        return rest

    def _may_wait(self, now: float) -> bool:
        """Whether the remaining finished messages may wait."""
        if not self._finished:
            self._waits_until = None
            return True
        if self._waits_until is None:
            self._waits_until = now + MAX_WAIT_SECONDS
        is_small = len(self._finished) * WAITING_SHARE <= len(self._unsettled)
        return is_small and now < self._waits_until

    def _remove(self, tags: Iterable[int]) -> None:
        for tag in tags:
            del self._unsettled[tag]
            self._finished.discard(tag)
