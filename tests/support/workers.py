"""The workers of a parallel run: what they do, which ports they take, how they end."""

import signal
from pathlib import PurePath
from types import FrameType

import pytest
from xdist.dsession import DSession
from xdist.scheduler import LoadScopeScheduling

from rabbitdelay.private_broker import ports

_PORTS_PER_WORKER = 1_000
_END_SECONDS = 40

# xdist's own way, `--dist loadgroup` and a mark, does nothing with pytest 9.2 and xdist 3.8.
_GROUPS = {
    "test_broker_cli.py": "brokers as programs",  # for their ports: see prepare
    "test_demo.py": "brokers as programs",
    "test_permissions.py": "one broker with few permissions",
    "test_refusals.py": "one broker with TLS",
    "test_wire_format.py": "one installation of npm packages",
}


class GroupScheduling(LoadScopeScheduling):
    """Sends each group to one worker, the groups first, and then one test after the other."""

    def _split_scope(self, nodeid: str) -> str:
        """The group of a test, or its own name."""
        file, _, _ = nodeid.partition("::")
        return _GROUPS.get(PurePath(file).name, nodeid)


def prepare(name: str) -> None:
    """Make this process the worker of this name: gw0, gw1 and so on.

    Its brokers' ports are from a range of its own: one that is starting does not listen for
    seconds, and two on different workers could pick the same. No range meets that of the product,
    which brokers have that a test starts as a program.
    """
    first = 10_000 + _PORTS_PER_WORKER * int(name.removeprefix("gw"))
    ports._CANDIDATES = range(first, first + _PORTS_PER_WORKER)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt_once)


def interrupt(config: pytest.Config) -> None:
    """Let all workers end now, in good order: by itself xdist would kill them after 10 s."""
    session = config.pluginmanager.get_plugin("dsession")
    if isinstance(session, DSession) and session.nodemanager is not None:
        session.nodemanager.EXIT_TIMEOUT = _END_SECONDS
        for gateway in session.nodemanager.group:
            gateway._io.popen.terminate()  # type: ignore[attr-defined]  # on purpose


def _interrupt_once(_number: int, _frame: FrameType | None) -> None:
    """End the run; what comes after must not disturb the end of the brokers."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
