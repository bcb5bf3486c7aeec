"""A script that puts a reminder for each order given as an argument or a line of stdin.

python remind.py --minutes 10 1 2 3
python remind.py --minutes 0.02 4 --wait     # also process the reminders when they are due
"""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta

from rabbitdelay import Client, JobSpec

NAMESPACE = os.environ.get("RABBITDELAY_NAMESPACE", "rabbitdelay")
PATIENCE_SECONDS = 10


def main() -> None:
    """Put the reminders, and with --wait print each one when it is due."""
    options = parse()
    with Client(namespace=NAMESPACE) as client:
        delay = timedelta(minutes=options.minutes)
        count = client.put_many(reminders(options.orders or map(int, sys.stdin), delay))
        print(f"{count} reminders, due in {delay}")
        if options.wait:
            process(client, count, delay)


def reminders(numbers: Iterable[int], delay: timedelta) -> Iterator[JobSpec]:
    """Yield one job per order, with an id derived from the order number."""
    for number in numbers:
        yield JobSpec("reminder", {"order": number}, delay=delay, id=f"reminder-{number}")


def process(client: Client, count: int, delay: timedelta) -> None:
    """Pop `count` jobs one by one and finish them."""
    for _ in range(count):
        job = client.pop("reminder", wait=delay.total_seconds() + PATIENCE_SECONDS)
        if job is None:
            sys.exit("no reminder received: is another consumer running?")
        with job:
            print(f"remind the customer of order {job.body['order']}")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("orders", nargs="*", type=int)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--wait", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
