"""Start and stop the demo's private broker."""

import shlex
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rabbitdelay.demo.display import Display
from rabbitdelay.private_broker import PrivateBroker, export_line
from rabbitdelay.private_broker.machine import signals


@contextmanager
def opened(display: Display, directory: Path | None, *, keep: bool) -> Iterator[PrivateBroker]:
    """Start a broker, and on exit stop it if it was started here, unless it is to be kept."""
    broker = PrivateBroker(directory or Path(tempfile.mkdtemp(prefix="rabbitdelay-demo-")))
    started, finished = True, False
    try:
        started = _start(display, broker)
        yield broker
        finished = True
    finally:
        if not (keep and finished):
            with signals.ignored():
                _close(broker, temporary=directory is None, started=started)


def show_addresses(display: Display, broker: PrivateBroker, *, keep: bool) -> None:
    """Show the broker's addresses and how to stop it."""
    display.line(f"  management UI  {broker.management_url}  (guest, guest)")
    if keep:
        display.line(f"  AMQP           {broker.url}")
        display.line(f"  to use it       {export_line(broker.directory)}")
        folder = shlex.quote(str(broker.directory))
        display.line(f"  to stop it     rabbitdelay broker stop --dir {folder}")
    else:
        display.line("  The broker stops now; `rabbitdelay demo --keep` leaves it running.")


def _start(display: Display, broker: PrivateBroker) -> bool:
    began = time.monotonic()
    with display.preparing("starting a private RabbitMQ (about 8 s)"):
        started = broker.start()
    if started:
        display.done(f"started a private RabbitMQ in {time.monotonic() - began:.1f} s")
    else:
        display.done(f"the private RabbitMQ in {broker.directory} was already running")
    display.line(f"  management UI at {broker.management_url} (guest, guest)")
    return started


def _close(broker: PrivateBroker, *, temporary: bool, started: bool) -> None:
    if temporary:
        broker.discard()
    elif started:
        broker.stop()
