"""Shell commands: their input, what their end means, and the end of their processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from io import TextIOWrapper
from pathlib import Path

import pytest

from rabbitdelay.actions.command.command import BURY_EXIT_CODE, MAX_TAIL, Command
from rabbitdelay.actions.command.process_group import ProcessGroup
from rabbitdelay.errors import Bury, InvalidConfiguration, LeaseLost, Retry
from tests.support.patience import patience, wait_until
from tests.unit.actions.test_job_facts import StubJob

ROOT = Path(__file__).parents[2]
MEBIBYTE = 1024 * 1024
FAMILY = "trap '' TERM INT HUP; sleep 60 & sh -c 'sleep 61 & echo $! >> pids; wait' & "
FAMILY += "echo $$ $! >> pids; wait"
"""A shell, two children and a grandchild, of which the file `pids` names three."""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def pids(directory: Path) -> list[int]:
    file = directory / "pids"
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


def is_running(pid: int) -> bool:
    """Return whether a process runs; a zombie, which an init may never reap, does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status[status.rindex(")") + 2] not in "ZX"


def wait_until_gone(directory: Path) -> None:
    family = pids(directory)
    wait_until(lambda: not any(map(is_running, family)), seconds=5, what=f"{family} are gone")


def start_family(
    command: Command, job: StubJob, threads: ThreadPoolExecutor, directory: Path
) -> Future[None]:
    future = threads.submit(command, job)
    wait_until(lambda: len(pids(directory)) == 3, what="the family runs")
    return future


@pytest.mark.parametrize("payload", [b"", b'{"order": 42}', bytes(range(256)) * 4096])
def test_the_body_is_the_commands_stdin(directory: Path, payload: bytes) -> None:
    Command("cat > body")(StubJob(payload=payload))
    assert (directory / "body").read_bytes() == payload


@pytest.mark.parametrize("command", ["exit 0", "exec <&-; sleep 0.05", "head -c 5 > /dev/null"])
def test_a_command_need_not_read_its_stdin(command: str) -> None:
    Command(command)(StubJob(payload=b"x" * MEBIBYTE))


def job_variables(directory: Path) -> dict[str, str]:
    lines = (directory / "environment").read_bytes().decode().split("\0")
    variables = dict(line.split("=", 1) for line in lines if line)
    return {name: value for name, value in variables.items() if name.startswith("RABBITDELAY_JOB_")}


def test_the_other_properties_of_the_job_are_in_the_environment(directory: Path) -> None:
    odd_id = "größe\n$(touch injected) '\"; 🐇"
    job = StubJob(id=odd_id, callback="https://example.com/\x00", headers={"n": b"\xff"})
    Command("env -0 > environment")(job)
    assert job_variables(directory) == {
        "RABBITDELAY_JOB_ID": odd_id,
        "RABBITDELAY_JOB_TOPIC": "orderclose",
        "RABBITDELAY_JOB_ATTEMPT": "2",
        "RABBITDELAY_JOB_DUE": "2027-01-15T08:00:30.250Z",
        "RABBITDELAY_JOB_DUE_MS": "1800000030250",
        "RABBITDELAY_JOB_TTR_MS": "60000",
        "RABBITDELAY_JOB_CONTENT_TYPE": "application/json",
        "RABBITDELAY_JOB_CALLBACK": "https://example.com/�",
        "RABBITDELAY_JOB_HEADERS": '{"n": "/w=="}',
    }


def test_the_environment_does_not_contain_another_jobs_variables(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command may itself be a consumer that was started by a consumer."""
    monkeypatch.setenv("RABBITDELAY_JOB_CALLBACK", "https://example.com/of-the-outer-job")
    monkeypatch.setenv("SHOP", "open")
    Command('env -0 > environment; test "$SHOP" = open')(StubJob(ttr_ms=None))
    missing = {"RABBITDELAY_JOB_CALLBACK", "RABBITDELAY_JOB_TTR_MS"}
    assert not missing & job_variables(directory).keys()


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("exit 1", "the command exited with code 1$"),
        (
            "echo first >&2; echo no such order >&2; exit 3",
            "exited with code 3: first\nno such order$",
        ),
        ("no-such-program", r"exited with code 127: .*no-such-program.*not found"),
        ("kill -SEGV $$", "the command was killed by SIGSEGV$"),
        ("kill -KILL $$", "the command was killed by SIGKILL$"),
        ("sh -c 'kill -TERM $$'; exit $?", r"exited with code 143 \(SIGTERM\)"),
        ("exit 255", "exited with code 255$"),
    ],
)
def test_a_failed_command_is_retried(command: str, error: str) -> None:
    with pytest.raises(Retry, match=error) as caught:
        Command(command)(StubJob())
    assert caught.value.delay is None


def test_an_exit_code_of_its_own_buries_the_job() -> None:
    with pytest.raises(Bury, match=r"^no such order$"):
        Command(f"echo no such order >&2; exit {BURY_EXIT_CODE}")(StubJob())
    with pytest.raises(Bury, match="exited with code 100"):
        Command(f"exit {BURY_EXIT_CODE}")(StubJob())


def test_the_output_of_a_command_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    Command("echo out; echo error >&2; cat")(StubJob(payload=b"body"))
    assert capfd.readouterr() == ("out\nbody", "error\n")


def test_long_output_on_stderr_is_passed_on_and_its_end_kept(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(Retry) as caught:
        Command("seq 1 100000 >&2; printf 'end: \\377' >&2; exit 1")(StubJob())
    lines = capfd.readouterr().err.splitlines()
    assert lines[:2] + lines[-2:-1] == ["1", "2", "100000"]
    text = str(caught.value)
    assert text.endswith("99999\n100000\nend: �")
    assert len(text) <= MAX_TAIL + len("the command exited with code 1: ")


def test_a_command_runs_without_a_usable_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        for stream in (None, TextIOWrapper(full)):
            monkeypatch.setattr(sys, "stderr", stream)
            with pytest.raises(Retry, match="exited with code 2: unseen"):
                Command("echo unseen >&2; exit 2")(StubJob())


def test_a_lost_lease_kills_the_command_with_all_its_children(
    threads: ThreadPoolExecutor, directory: Path
) -> None:
    job = StubJob()
    future = start_family(Command(FAMILY), job, threads, directory)
    job.lose()
    with pytest.raises(LeaseLost, match="the command was killed"):
        future.result(timeout=patience(5))
    wait_until_gone(directory)


def test_a_command_does_not_run_for_a_lost_job(directory: Path) -> None:
    job = StubJob()
    job.lose()
    with pytest.raises(LeaseLost):
        Command("sleep 60; touch effect")(job)
    assert not (directory / "effect").exists()


def test_a_lease_lost_after_the_commands_end_kills_no_process() -> None:
    """The id of its process group may be reused by then."""
    group = ProcessGroup(["/bin/sh", "-c", "exit 7"], {})
    with group.stdin, group.stderr:
        group.wait()
        group.end()
    assert group.exit_code == 7
    group.kill("too late")
    assert group.killed_because is None


def test_processes_left_in_the_group_end_with_the_command(directory: Path) -> None:
    started = time.monotonic()
    Command("sleep 60 & echo $! > pids; exit 0")(StubJob())
    assert time.monotonic() - started < patience(5)
    assert len(pids(directory)) == 1
    wait_until_gone(directory)


def test_a_program_that_leaves_the_group_outlives_the_command(directory: Path) -> None:
    """This includes one that keeps the command's stderr open."""
    started = time.monotonic()
    Command("setsid sh -c 'echo $$ > pids; exec sleep 60' & until [ -s pids ]; do :; done")(
        StubJob()
    )
    assert time.monotonic() - started < patience(5)
    (pid,) = pids(directory)
    assert is_running(pid)
    os.kill(pid, signal.SIGKILL)


def test_a_stop_kills_all_running_commands(threads: ThreadPoolExecutor, tmp_path: Path) -> None:
    command = Command("echo $$ >> pids; sleep 60 & wait")
    futures = [threads.submit(command, StubJob()) for _ in range(3)]
    wait_until(lambda: len(pids(tmp_path)) == 3, what="three commands run")
    command.kill_all()
    for future in futures:
        with pytest.raises(Retry, match="killed: the consumer was stopped"):
            future.result(timeout=patience(5))
    wait_until_gone(tmp_path)
    with pytest.raises(Retry, match="killed: the consumer was stopped"):
        command(StubJob())


def test_the_end_of_the_context_kills_running_commands(
    threads: ThreadPoolExecutor, directory: Path
) -> None:
    with Command(FAMILY) as command:
        future = start_family(command, StubJob(), threads, directory)
    assert isinstance(future.exception(timeout=patience(5)), Retry)
    wait_until_gone(directory)


def test_control_c_on_the_terminal_does_not_reach_the_command(
    threads: ThreadPoolExecutor, directory: Path
) -> None:
    with Command(FAMILY) as command:
        start_family(command, StubJob(), threads, directory)
        sessions = {os.getsid(pid) for pid in pids(directory)}
    assert len(sessions) == 1
    assert os.getsid(0) not in sessions


INTERRUPTED = """
import signal, sys
from rabbitdelay.actions.command.command import Command
from tests.unit.actions.test_job_facts import StubJob
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in background
Command(sys.argv[1])(StubJob())
"""


@pytest.mark.parametrize("seen", [1, 3])
def test_an_interrupted_wait_kills_the_command(directory: Path, seen: int) -> None:
    """`pop --exec` runs commands on the main thread. The interrupt may come at their start."""
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, FAMILY],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
    )
    wait_until(lambda: len(pids(directory)) >= seen, what="the family runs")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=patience(10))
    assert b"KeyboardInterrupt" in errors
    wait_until_gone(directory)


def test_a_command_that_cannot_be_started_is_retried() -> None:
    with pytest.raises(Retry, match=r"cannot start the command: .*too long"):
        Command("exit 0")(StubJob(callback="https://example.com/" + "x" * MEBIBYTE))


@pytest.mark.parametrize(
    ("command", "shell", "error"),
    [
        ("exit 0", "/nonexistent/sh", "the shell /nonexistent/sh does not exist"),
        ("exit 0", "/", "is not executable"),
        (" ", "/bin/sh", "empty"),
        ("echo \x00", "/bin/sh", "NUL"),
    ],
)
def test_a_command_that_can_never_run_is_refused(command: str, shell: str, error: str) -> None:
    with pytest.raises(InvalidConfiguration, match=error):
        Command(command, shell=shell)
