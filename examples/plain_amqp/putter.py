"""Put jobs with plain pika. Does not use rabbitdelay.

python putter.py TOPIC DELAY_MS [COUNT]
"""

import json
import os
import secrets
import sys
import time
import uuid

import pika

URL = os.environ.get("RABBITDELAY_URL", "amqp://localhost")
PREFIX = os.environ.get("RABBITDELAY_NAMESPACE", "rabbitdelay") + ".v1."

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
LEVELS = ("y", "mo", "d", "h", "m", "s", "ds", "cs")
UNITS_MS = (360 * DAY, 30 * DAY, DAY, HOUR, MINUTE, SECOND, 100, 10)
MAX_DELAY_MS = 3288 * DAY


def digits(delay_ms: int) -> list[int]:
    """Return a delay as eight digits, rounded up to its grain so that a job is never early."""
    if not 0 <= delay_ms <= MAX_DELAY_MS:
        raise ValueError(f"a delay must be from 0 to {MAX_DELAY_MS} ms, not {delay_ms}")
    grain = 10 if delay_ms < MINUTE else 100 if delay_ms < HOUR else SECOND
    rest = -(-delay_ms // grain) * grain
    result = []
    for unit in UNITS_MS:
        digit, rest = divmod(rest, unit)
        result.append(digit)
    return result


def entry_exchange(delay_digits: list[int]) -> str:
    """Return the exchange of the first non-zero digit's level, or ready without a delay."""
    levels = [level for level, digit in zip(LEVELS, delay_digits, strict=True) if digit]
    return f"{PREFIX}level.{levels[0]}" if levels else f"{PREFIX}ready"


def new_job(delay_ms: int) -> pika.BasicProperties:
    """Return the properties of a new job. Never set `expiration`: the hold queues delay it."""
    now_ms = time.time_ns() // 1_000_000
    return pika.BasicProperties(
        delivery_mode=2,  # persistent
        message_id=str(uuid.uuid4()),
        content_type="application/json",
        timestamp=now_ms // 1000,
        headers={
            "rd-version": 1,
            "rd-put": now_ms,
            "rd-due": now_ms + delay_ms,
            "rd-ttr": 60_000,
            "rd-token": secrets.token_hex(8),
        },
    )


def main(topic: str, delay: str, count: str = "1") -> None:
    """Put jobs, and print each id once the broker has confirmed the job."""
    delay_digits = digits(int(delay))
    exchange = entry_exchange(delay_digits)
    routing_key = ".".join(map(str, delay_digits)) + "." + topic
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.queue_declare(f"{PREFIX}ready.{topic}", passive=True)  # fails if it is missing
        channel.confirm_delivery()  # from here on, basic_publish waits for the confirm
        for number in range(int(count)):
            job, body = new_job(int(delay)), json.dumps({"number": number}).encode()
            channel.basic_publish(exchange, routing_key, body, job, mandatory=True)
            print(job.message_id, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
