"""Count the calls from one file to another during a put, and during a delivery to a worker.

Not part of `make bench`, because it shows where the code has needless steps. A call counts when the
caller and the called function are in the package, but in different files. Resuming a generator
counts as a call, because it costs as much. Calls in all threads are counted, over many puts or
deliveries one after another.

`python -m benchmarks.explore_crossings --list` prints each crossing.
"""

import argparse
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

import rabbitdelay
from benchmarks.measuring import TOPIC, Report, broker_version
from rabbitdelay import Client, Worker
from rabbitdelay.private_broker import PrivateBroker

PACKAGE = str(Path(rabbitdelay.__file__).parent)
WARM = 20
COUNTED = 200
Crossing = tuple[str, str]


class Crossings:
    """Counts calls between files while `is_on`, in this thread and in those that start later."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls: Counter[Crossing] = Counter()
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    @property
    def each(self) -> float:
        """Number of crossings of one put or delivery."""
        return round(self.calls.total() / COUNTED, 1)

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self.is_on or event != "call" or frame.f_back is None:
            return
        called, caller = _place(frame), _place(frame.f_back)
        if called and caller and called.partition(":")[0] != caller.partition(":")[0]:
            self.calls[caller, called] += 1


def _place(frame: FrameType) -> str | None:
    """Return the file and the function of a frame, or None if it is not part of the package."""
    code = frame.f_code
    if not code.co_filename.startswith(PACKAGE):
        return None
    return f"{code.co_filename.removeprefix(PACKAGE)[1:]}:{code.co_qualname}"


def of_puts(url: str) -> Crossings:
    """Count the crossings of puts, after a warm-up."""
    crossings = Crossings()
    with Client(url) as client:
        for number in range(WARM + COUNTED):
            crossings.is_on = number >= WARM
            client.put(TOPIC, b"x")
        crossings.is_on = False
    return crossings


def of_deliveries(url: str) -> Crossings:
    """Count the crossings of deliveries, from one handler to the next, after a warm-up."""
    crossings = Crossings()
    worker = Worker(url, concurrency=1)
    handled = 0

    @worker.handler(TOPIC)
    def count(_body: bytes) -> None:
        nonlocal handled
        handled += 1
        crossings.is_on = WARM <= handled < WARM + COUNTED

    worker.run(max_jobs=WARM + COUNTED)
    return crossings


def run(broker: PrivateBroker) -> tuple[Report, Crossings, Crossings]:
    """Count both. The worker receives the jobs that were put before."""
    puts, deliveries = of_puts(broker.url), of_deliveries(broker.url)
    report = Report(
        name="crossings",
        broker=broker_version(broker),
        figures={"put": puts.each, "delivery": deliveries.each},
        ratios={},
        target="none: it shows where steps are needless",
        ok=True,
        sentence=f"A put crosses files {puts.each} times, a delivery {deliveries.each} times.",
    )
    return report, puts, deliveries


def main() -> None:
    """Count the crossings, and print each with `--list`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print each crossing")
    shown = parser.parse_args().list
    with PrivateBroker.temporary() as broker:
        report, puts, deliveries = run(broker)
    for title, found in (("put", puts), ("delivery", deliveries)) if shown else ():
        print(f"{title}:")
        for (caller, called), count in found.calls.most_common():
            print(f"{count / COUNTED:6.2f} {caller} -> {called}")
    report.show()


if __name__ == "__main__":
    main()
