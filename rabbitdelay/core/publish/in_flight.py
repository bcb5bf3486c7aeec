"""Messages in flight: sent on one channel and not yet confirmed, by delivery tag."""

from collections.abc import Callable, Iterator

from rabbitdelay.core.amqp import field_table
from rabbitdelay.core.amqp.decode import Returned
from rabbitdelay.core.publish.pending import Pending

TOKEN = "rd-token"  # noqa: S105 - the name of a header


class Flight:
    """The unconfirmed messages of one channel. The first message has delivery tag 1."""

    def __init__(self) -> None:
        self._sent: dict[int, Pending] = {}
        self._next_tag = 1
        self._lowest_tag = 1

    def __len__(self) -> int:
        return len(self._sent)

    def __iter__(self) -> Iterator[Pending]:
        """Iterate over the messages in the order in which they were sent."""
        return iter(self._sent.values())

    def add(self, pending: Pending) -> None:
        """Record that a message was sent."""
        self._sent[self._next_tag] = pending
        self._next_tag += 1

    def take(self, tag: int, *, multiple: bool) -> list[Pending]:
        """Remove and return the message that was confirmed or refused, or all messages up to it."""
        if not multiple:
            pending = self._sent.pop(tag, None)
            self._lowest_tag += tag == self._lowest_tag
            return [] if pending is None else [pending]
        tags = range(self._lowest_tag, tag + 1)
        self._lowest_tag = max(self._lowest_tag, tag + 1)
        found = (self._sent.pop(number, None) for number in tags)
        return [pending for pending in found if pending is not None]

    def take_returned(self, returned: Returned) -> Pending | None:
        """Remove and return a message that the broker returned.

        The confirm that follows it is ignored.
        """
        for tag, pending in self._sent.items():
            message = pending.message
            # Compared by its bytes, which are all that the copy of a parked job has.
            is_same = message.message_id == returned.message_id and (
                field_table.encode_one(message.headers, TOKEN) == returned.headers.get(TOKEN)
            )
            if is_same and pending.may_go_to(returned.exchange, returned.routing_key):
                return self._sent.pop(tag)
        return None

    def take_if(self, condition: Callable[[Pending], bool]) -> list[Pending]:
        """Remove and return the messages that meet a condition; their tags stay assigned."""
        found = [(tag, pending) for tag, pending in self._sent.items() if condition(pending)]
        for tag, _ in found:
            del self._sent[tag]
        return [pending for _, pending in found]
