"""Consume jobs with plain pika. Does not use rabbitdelay.

python consumer.py TOPIC COUNT
"""

import itertools
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

URL = os.environ.get("RABBITDELAY_URL", "amqp://localhost")
PREFIX = os.environ.get("RABBITDELAY_NAMESPACE", "rabbitdelay") + ".v1."
MAX_ATTEMPTS = 5

Job = dict[str, Any]
Delivery = tuple[Any, pika.BasicProperties, bytes]
Handle = Callable[[Job], None]
log = logging.getLogger("consumer")


def read(topic: str, properties: pika.BasicProperties, body: bytes) -> Job:
    """Return the job in a message, with defaults for missing fields, or raise."""
    now_ms = time.time_ns() // 1_000_000
    headers = properties.headers or {}
    if headers.get("rd-version", 1) != 1:
        raise ValueError("this consumer is too old for the message")
    is_json = properties.content_type == "application/json"
    return {
        "id": properties.message_id,
        "topic": topic,
        "attempt": int(headers.get("rd-attempt", 1)),
        "max_attempts": int(headers.get("rd-max-attempts", MAX_ATTEMPTS)),
        "lateness_ms": max(0, now_ms - int(headers.get("rd-due", now_ms))),
        "body": json.loads(body) if is_json else body.decode(errors="replace"),
    }


def fresh_headers(headers: Job | None, attempt: int, delay_s: int) -> Job:
    """Return the headers for putting a job again, without those that the broker added."""
    kept = {name: value for name, value in (headers or {}).items() if not name.startswith("x-")}
    due_ms = int(kept.get("rd-due", time.time_ns() // 1_000_000))  # by the publisher's clock
    dates = {"rd-due": due_ms + delay_s * 1000, "rd-known": kept.get("rd-known", due_ms)}
    return kept | {"rd-attempt": attempt} | dates


def work(channel: BlockingChannel, topic: str, delivery: Delivery, handle: Handle) -> None:
    """Handle one job, put it again with a confirm if it fails, then settle the message."""
    method, properties, body = delivery
    job = None
    try:
        job = read(topic, properties, body)
        handle(job)
    except Exception:
        log.exception("job %s failed", properties.message_id)
        if job is None or job["attempt"] >= job["max_attempts"]:
            channel.basic_nack(method.delivery_tag, requeue=False)  # buries the job
            return
        delay_s = min(job["attempt"] ** 2, 59)
        properties.headers = fresh_headers(properties.headers, job["attempt"] + 1, delay_s)
        properties.delivery_mode = 2  # persistent
        key = f"0.0.0.0.0.{delay_s}.0.0.{topic}"
        channel.basic_publish(f"{PREFIX}level.s", key, body, properties, mandatory=True)
    channel.basic_ack(method.delivery_tag)


def consume(topic: str, count: int, handle: Handle) -> None:
    """Consume jobs from a topic's ready queue, one at a time, until `count` are settled."""
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()  # from here on, basic_publish waits for the confirm
        channel.basic_qos(prefetch_count=1)  # number of jobs in flight at once
        deliveries: Iterator[Any] = channel.consume(f"{PREFIX}ready.{topic}")
        for delivery in itertools.islice(deliveries, count):
            work(channel, topic, delivery, handle)


if __name__ == "__main__":
    consume(sys.argv[1], int(sys.argv[2]), lambda job: print(json.dumps(job), flush=True))
