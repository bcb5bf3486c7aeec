"""The xdist workers of a parallel run: scheduling, port ranges and shutdown."""

import signal
from pathlib import PurePath
from types import FrameType

import pytest
from xdist.dsession import DSession
from xdist.scheduler import LoadScopeScheduling

from rabbitdelay.private_broker import ports

_PORTS_PER_WORKER = 1_000
_END_SECONDS = 40

# xdist's own mechanism, `--dist loadgroup` and a mark, has no effect with pytest 9.2 and xdist 3.8.
_GROUPS = {
    "test_broker_cli.py": "brokers as programs",  # they share ports: see prepare
    "test_cli_alarm.py": "one broker in an alarm",
    "test_demo.py": "brokers as programs",
    "test_permissions.py": "one broker with few permissions",
    "test_refusals.py": "one broker with TLS",
    "test_wire_format.py": "one installation of npm packages",
}


class GroupScheduling(LoadScopeScheduling):
    """Sends each group to one worker, and the groups first; other tests are sent one by one."""

    def _split_scope(self, nodeid: str) -> str:
        """Return the test's group, or its node id if it has none."""
        file, _, _ = nodeid.partition("::")
        return _GROUPS.get(PurePath(file).name, nodeid)


def prepare(name: str) -> None:
    """Set up this process as the xdist worker with this name: gw0, gw1 and so on.

    Its brokers use a port range of its own. A broker that starts does not listen for seconds, so
    two xdist workers could otherwise pick the same port. No range overlaps with the product's own,
    which is used by brokers that a test starts as a program.
    """
    first = 10_000 + _PORTS_PER_WORKER * int(name.removeprefix("gw"))
    ports._CANDIDATES = range(first, first + _PORTS_PER_WORKER)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt_once)


def interrupt(config: pytest.Config) -> None:
    """Terminate all workers and wait for their cleanup, because xdist kills them after 10 s."""
    session = config.pluginmanager.get_plugin("dsession")
    if isinstance(session, DSession) and session.nodemanager is not None:
        session.nodemanager.EXIT_TIMEOUT = _END_SECONDS
        for gateway in session.nodemanager.group:
            gateway._io.popen.terminate()  # type: ignore[attr-defined]  # on purpose


def _interrupt_once(_number: int, _frame: FrameType | None) -> None:
    """End the run, and ignore further signals so that brokers are stopped undisturbed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
