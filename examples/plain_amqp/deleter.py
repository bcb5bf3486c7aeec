"""Delete jobs with plain pika: nothing here comes from rabbitdelay.

python deleter.py ID...                    what was put under these ids until now
python deleter.py --job ID TOKEN DUE_MS    one job, whatever the clocks say
"""

import json
import os
import sys
import time
from typing import Any

import pika

URL = os.environ.get("RABBITDELAY_URL", "amqp://localhost")
LOG = os.environ.get("RABBITDELAY_NAMESPACE", "rabbitdelay") + ".tombstones"


def delete(targets: list[Any]) -> None:
    """Write one record, and return when the broker has it. Up to 1000 targets are fine."""
    record = {"delete": targets, "time": time.time_ns() // 1_000_000}
    persistent = pika.BasicProperties(delivery_mode=2, content_type="application/json")
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.queue_declare(LOG, passive=True)  # an error when missing
        channel.confirm_delivery()  # from here on, basic_publish waits for the confirm
        channel.basic_publish(LOG, "", json.dumps(record).encode(), persistent, mandatory=True)


def main(*arguments: str) -> None:
    """Delete what the arguments name."""
    if arguments[0] == "--job":
        _, job_id, token, due_ms = arguments
        delete([[job_id, token, int(due_ms)]])
    else:
        delete(list(arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
