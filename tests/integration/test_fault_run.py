"""The fault suite as a program: two interrupted runs leave reports, and no process behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.patience import patience, wait_until
from tests.support.programs.script import ROOT

PROC = Path("/proc")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not (PROC / "self" / "environ").exists(), reason="needs /proc"),
]


@contextmanager
def running(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the suite with its temporary files in `folder`, which marks all of its processes."""
    folder.mkdir()
    command = [sys.executable, "-m", "tests.faults.run", "--minutes", "5", "--seed", "7"]
    with (folder / "output").open("w") as output:
        run = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {"TMPDIR": str(folder)}, stdout=output, text=True
        )
    try:
        yield run
    finally:
        if run.poll() is None:
            run.terminate()
            run.wait(patience(60))


def processes_of(folder: Path) -> list[str]:
    """Return the commands of all processes started by a run in this folder."""
    found = []
    for process in PROC.glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue  # it has ended, or belongs to another user
    return found


def test_two_runs_at_once_can_be_interrupted_and_leave_no_process(tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    with running(folders[0]) as first, running(folders[1]) as second:
        for folder in folders:
            output = folder / "output"
            is_loaded = lambda output=output: "to come" in output.read_text()  # noqa: E731
            wait_until(is_loaded, seconds=60, what="the load is running")
            assert sum("tests.faults.worker" in one for one in processes_of(folder)) == 4
            assert any("beam" in one for one in processes_of(folder))
        for run, number in ((first, signal.SIGINT), (second, signal.SIGTERM)):
            run.send_signal(number)
            run.send_signal(number)  # as with Ctrl-C pressed twice
        assert [run.wait(patience(60)) for run in (first, second)] == [130, 130]
    for folder in folders:
        assert processes_of(folder) == []
        lines = (folder / "output").read_text().splitlines()
        assert lines[-1].startswith("INCOMPLETE: interrupted")
        report = json.loads(Path(lines[0].split()[-1], "report.json").read_text())
        assert report["closing"] == lines[-1]
