"""Consume jobs with plain pika and skip deleted ones. Does not use rabbitdelay.

python careful_consumer.py TOPIC COUNT
"""

import json
import secrets
import sys
import time
from typing import Any

import pika
from consumer import PREFIX, URL, Handle, work
from deleter import LOG
from pika.adapters.blocking_connection import BlockingChannel
from tombstones import Tombstones

FENCE_S, PATIENCE_S = 2, 30


class CutOff(Exception):
    """Raised when the deleted jobs are unknown, so that jobs must not be processed."""


class Log(Tombstones):
    """The log of deletes, read on its own connection up to a fence of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.connection = pika.BlockingConnection(pika.URLParameters(URL))
        self.channel = self.connection.channel()
        self.channel.basic_qos(prefetch_count=1000)  # streams require one, and manual acks
        self.channel.add_on_cancel_callback(lambda _: setattr(self, "is_cancelled", True))
        self.is_cancelled = False
        self.count = 0
        self.read_at = 0.0
        start = {"x-stream-offset": "first"}
        self.channel.basic_consume(LOG, self._delivered, arguments=start)
        self._await_fence()

    def look(self) -> None:
        """Read all records that have arrived. Raise CutOff if newer ones may be missing."""
        before = -1
        while before != self.count:
            before = self.count
            self.connection.process_data_events(0)
        if self.is_cancelled or not self.channel.is_open:
            raise CutOff(f"{LOG} has been deleted, or its channel is closed")
        if time.monotonic() - self.fenced_at > FENCE_S:
            self._await_fence()

    def _delivered(
        self,
        channel: BlockingChannel,
        method: pika.spec.Basic.Deliver,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        self.count += 1
        self.read_at = time.monotonic()
        self.read((properties.headers or {})["x-stream-offset"], body)
        channel.basic_ack(method.delivery_tag)

    def _await_fence(self) -> None:
        nonce, written_at = secrets.token_hex(8), time.monotonic()
        self.channel.basic_publish(LOG, "", json.dumps({"fence": nonce}).encode())
        while self.fence != nonce:
            if self.is_cancelled or time.monotonic() - max(written_at, self.read_at) > PATIENCE_S:
                raise CutOff(f"a record written to {LOG} was not delivered within {PATIENCE_S} s")
            self.connection.process_data_events(0.1)
        self.fenced_at = written_at


def is_dead(log: Log, topic: str, properties: pika.BasicProperties) -> bool:
    """Whether a job is deleted."""
    headers = properties.headers or {}
    put_ms = headers.get("rd-put")
    if put_ms is None and properties.timestamp is not None:
        put_ms = properties.timestamp * 1000
    return log.kills(topic, properties.message_id or "", headers.get("rd-token", ""), put_ms)


def consume(topic: str, count: int, handle: Handle) -> None:
    """Consume jobs one at a time until `count` are settled. Deleted jobs are acked, not run."""
    log = Log()
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_qos(prefetch_count=1)
        while count:
            while log.is_paused(topic):
                channel.cancel()  # prefetched messages are requeued
                connection.sleep(1)
                log.look()
            deliveries: Any = channel.consume(f"{PREFIX}ready.{topic}", inactivity_timeout=1)
            method, properties, body = next(deliveries)
            log.look()  # check when the job is processed, not when its message arrived
            if method is None:
                continue
            if log.is_paused(topic):
                channel.basic_nack(method.delivery_tag)
                continue
            if is_dead(log, topic, properties):
                channel.basic_ack(method.delivery_tag)
            else:
                work(channel, topic, (method, properties, body), handle)
            count -= 1


if __name__ == "__main__":
    consume(sys.argv[1], int(sys.argv[2]), lambda job: print(json.dumps(job), flush=True))
