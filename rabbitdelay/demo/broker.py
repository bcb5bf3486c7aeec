"""The theatre: the private broker that the story plays on."""

import shlex
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rabbitdelay.demo.display import Stage
from rabbitdelay.private_broker import PrivateBroker, export_line, signals


@contextmanager
def opened(stage: Stage, directory: Path | None, *, keep: bool) -> Iterator[PrivateBroker]:
    """A started broker. At the end it is gone when it was started here, unless it is kept."""
    broker = PrivateBroker(directory or Path(tempfile.mkdtemp(prefix="rabbitdelay-demo-")))
    started, finished = True, False
    try:
        started = _start(stage, broker)
        yield broker
        finished = True
    finally:
        if not (keep and finished):
            with signals.ignored():
                _close(broker, temporary=directory is None, started=started)


def say_where(stage: Stage, broker: PrivateBroker, *, keep: bool) -> None:
    """Say where to look at it, and how to stop it."""
    stage.say(f"  management UI  {broker.management_url}  (guest, guest)")
    if keep:
        stage.say(f"  AMQP           {broker.url}")
        stage.say(f"  to use it      {export_line(broker.directory)}")
        folder = shlex.quote(str(broker.directory))
        stage.say(f"  to stop it     rabbitdelay broker stop --dir {folder}")
    else:
        stage.say("  It stops now; `rabbitdelay demo --keep` leaves it running to look around.")


def _start(stage: Stage, broker: PrivateBroker) -> bool:
    began = time.monotonic()
    with stage.preparing("starting a private RabbitMQ, which takes about 8 s"):
        started = broker.start()
    if started:
        stage.done(f"a private RabbitMQ is up, in {time.monotonic() - began:.1f} s")
    else:
        stage.done(f"the private RabbitMQ in {broker.directory} was up")
    stage.say(f"  watch it at {broker.management_url} (guest, guest)")
    return started


def _close(broker: PrivateBroker, *, temporary: bool, started: bool) -> None:
    if temporary:
        broker.discard()
    elif started:
        broker.stop()
