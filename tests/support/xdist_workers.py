"""The xdist workers of a parallel run: scheduling, port ranges and shutdown."""

import fcntl
import os
import signal
import tempfile
from operator import itemgetter
from pathlib import Path, PurePath
from types import FrameType

import pytest
from xdist.dsession import DSession
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from rabbitdelay.private_broker.machine import ports

_PORTS_PER_WORKER = 500
_PORT_RANGES = [
    range(first, first + _PORTS_PER_WORKER) for first in range(10_000, 20_000, _PORTS_PER_WORKER)
]
_END_SECONDS = 40

# xdist's own mechanism, `--dist loadgroup` and a mark, has no effect with pytest 9.2 and xdist 3.8.
_GROUPS = {
    "test_broker_cli.py": "brokers as programs",  # they share ports: see prepare
    "test_cli_alarm.py": "one broker in an alarm",
    "test_demo.py": "brokers as programs",
    "test_http_examples.py": "one gateway",
    "test_permissions.py": "one broker with few permissions",
    "test_refusals.py": "one broker with TLS",
    "test_wire_format.py": "one installation of npm packages",
}


_UNIT = "tests/unit/"


class GroupScheduling(LoadScopeScheduling):
    """Sends each group to one worker, and each file of unit tests; other tests one by one.

    The order is that of `arrange`.
    """

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        """Return the test's group or file of unit tests, or its node id if it has none."""
        return _unit_of_work(nodeid) or nodeid


def _unit_of_work(nodeid: str) -> str | None:
    file, _, _ = nodeid.partition("::")
    return _GROUPS.get(PurePath(file).name) or (file if nodeid.startswith(_UNIT) else None)


def arrange(items: list[pytest.Item]) -> None:
    """Put the groups first, and distribute the unit tests evenly over the others.

    Unit tests compute. The others mostly wait, so that the cores are idle without unit tests.
    """
    grouped, computing, waiting = list[pytest.Item](), list[pytest.Item](), list[pytest.Item]()
    for item in items:
        is_unit = item.nodeid.startswith(_UNIT)
        kind = computing if is_unit else grouped if _unit_of_work(item.nodeid) else waiting
        kind.append(item)
    places = [
        (number / len(kind), item)
        for kind in (waiting, computing)
        for number, item in enumerate(kind)
    ]
    items[:] = [*grouped, *(item for _, item in sorted(places, key=itemgetter(0)))]


def prepare(*, starts_brokers: bool) -> None:
    """Set up this process as an xdist worker.

    Its brokers use a port range of its own. A broker that starts does not listen for seconds, so
    two xdist workers, of this run or of another, could otherwise pick the same port. No range
    overlaps with the product's own, which is used by brokers that a test starts as a program.
    """
    if starts_brokers:
        ports._CANDIDATES = _reserve_port_range()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt_once)


def _reserve_port_range() -> range:
    """Return the first port range that no other process has locked; the lock ends with this one."""
    for candidates in _PORT_RANGES:
        path = Path(
            tempfile.gettempdir(), f"rabbitdelay-tests-{os.getuid()}-ports-{candidates.start}"
        )
        lock = os.open(path, os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return candidates
    pytest.exit(f"All {len(_PORT_RANGES)} port ranges are used by other test runs.", returncode=1)


def extend_exit(config: pytest.Config) -> None:
    """Give workers more time to end on a busy machine, because xdist kills them after 10 s."""
    session = config.pluginmanager.get_plugin("dsession")
    if isinstance(session, DSession) and session.nodemanager is not None:
        session.nodemanager.EXIT_TIMEOUT = _END_SECONDS


def interrupt(config: pytest.Config) -> None:
    """Terminate all workers."""
    session = config.pluginmanager.get_plugin("dsession")
    if isinstance(session, DSession) and session.nodemanager is not None:
        for gateway in session.nodemanager.group:
            gateway._io.popen.terminate()  # type: ignore[attr-defined]  # on purpose


def _interrupt_once(_number: int, _frame: FrameType | None) -> None:
    """End the run, and ignore further signals so that brokers are stopped undisturbed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
