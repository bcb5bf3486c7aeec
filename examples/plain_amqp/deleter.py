"""Delete jobs with plain pika. Does not use rabbitdelay.

python deleter.py ID...                    all jobs put with these ids until now
python deleter.py --job ID TOKEN DUE_MS    one job, independent of clocks
"""

import json
import os
import sys
import time
from typing import Any

import pika

URL = os.environ.get("RABBITDELAY_URL", "amqp://localhost")
LOG = os.environ.get("RABBITDELAY_NAMESPACE", "rabbitdelay") + ".tombstones"


def delete(jobs: list[Any]) -> None:
    """Publish one record and wait for its confirm. A record may have up to 1000 ids and jobs."""
    record = {"delete": jobs, "time": time.time_ns() // 1_000_000}
    persistent = pika.BasicProperties(delivery_mode=2, content_type="application/json")
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.queue_declare(LOG, passive=True)  # fails if it is missing
        channel.confirm_delivery()  # from here on, basic_publish waits for the confirm
        channel.basic_publish(LOG, "", json.dumps(record).encode(), persistent, mandatory=True)


def main(*arguments: str) -> None:
    """Delete the jobs that the arguments name."""
    if arguments[0] == "--job":
        _, job_id, token, due_ms = arguments
        delete([[job_id, token, int(due_ms)]])
    else:
        delete(list(arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
