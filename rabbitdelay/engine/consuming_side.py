"""The consuming side of a client: everything that it receives, on one connection."""

import secrets

from rabbitdelay.engine import process_lifetime
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.consume.listener import ConsumerListeners
from rabbitdelay.engine.consume.reply_queue import ReplyQueue
from rabbitdelay.engine.delete_log.reader import LogReader
from rabbitdelay.engine.flow import Flow, Wait
from rabbitdelay.engine.peers.peer_group import PeerGroup
from rabbitdelay.engine.pop.popper import Popper
from rabbitdelay.engine.publish.publisher import Publisher
from rabbitdelay.errors import CutOff, NamespaceMissing


class ConsumingSide:
    """Combines the consumer of a client with its log reader, popper, reply queue and peers."""

    def __init__(self, consumer: Consumer, log_reader: LogReader, publisher: Publisher) -> None:
        self.consumer = consumer
        self.log_reader = log_reader
        self.popper = Popper(consumer, log_reader)
        self.replies = ReplyQueue(consumer, secrets.token_hex(8))
        self.peers = PeerGroup(consumer, publisher, secrets.token_hex(8))

    def start(self) -> None:
        """Start to connect."""
        listeners = (self.log_reader, self.popper, self.replies, self.peers)
        self.consumer.start(ConsumerListeners(*listeners))

    @property
    def has_ended(self) -> bool:
        """Whether the connection's thread has died, or its event loop has ended."""
        return self.consumer.has_ended

    def connected(self, timeout: float) -> Flow[None]:
        """Wait for the first connection; raise the error that prevents it."""
        return self.consumer.connected(timeout)

    def close(self, flush_seconds: float) -> Flow[None]:
        """Return unfinished jobs, wait for the copies in flight, and close."""
        return self.consumer.close(flush_seconds)

    def close_soon(self, flush_seconds: float = process_lifetime.EXIT_FLUSH_SECONDS) -> None:
        """Close in the background."""
        self.consumer.close_soon(flush_seconds)

    def until_read(self, timeout: float) -> Flow[LogReader]:
        """Wait until the log of deletes has been read to its end once."""
        log_reader = self.log_reader
        if log_reader.has_caught_up and not isinstance(log_reader.status.failure, NamespaceMissing):
            return log_reader
        read = log_reader.begin()
        try:
            yield Wait(read, timeout)
        except TimeoutError:
            raise CutOff(log_reader.status.text) from None
        return log_reader
