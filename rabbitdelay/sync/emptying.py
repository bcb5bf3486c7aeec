"""Emptying the queues of a topic at once, when it was purged."""

from collections.abc import Sequence
from typing import Any

from pika import exceptions as pika_errors

from rabbitdelay.address import Address
from rabbitdelay.core import replies
from rabbitdelay.core.topology import Topology
from rabbitdelay.sync import driver_errors
from rabbitdelay.sync.blocking import connected


def empty(addresses: Sequence[Address], topology: Topology, topic: str) -> int:
    """Empty the ready and the buried queue of a topic; return how many jobs were in them.

    What is held by a consumer is not in them: the tombstone is for that, and for what is delayed.
    """
    count = 0
    with connected(addresses) as connection:
        for queue in (topology.ready_queue(topic), topology.buried_queue(topic)):
            try:
                answer: Any = connection.channel().queue_purge(queue).method
            except pika_errors.ChannelClosedByBroker as error:
                if error.reply_code != replies.NOT_FOUND:
                    raise driver_errors.channel_error(error) from None
            else:
                count += answer.message_count
    return count
