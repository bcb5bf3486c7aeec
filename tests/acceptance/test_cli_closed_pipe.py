"""A reader that closes its pipe ends every command silently, with the exit code of SIGPIPE."""

import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from rabbitdelay import Client
from rabbitdelay.cli import root
from tests.acceptance.conftest import CommandLine
from tests.support.jobs.popped_jobs import pop
from tests.support.patience import patience

COMMANDS_AT_A_TIME = 2
COMMANDS = [
    ("put", "t", "1", "--id", "late"),
    ("consume", "print", "--print"),
    ("pop", "pop"),
    ("pop", "pop", "--json"),
    ("delete", "t", "a"),
    ("reschedule", "-", "--delay", "1h"),
    ("topics",),
    ("stats",),
    ("stats", "--json"),
    ("stats", "--watch"),
    ("pause", "paused"),
    ("resume", "resumed"),
    ("purge", "purged", "--yes"),
    ("buried", "list", "buried"),
    ("buried", "show", "buried", "grave"),
    ("unrouted", "list", "--json"),
    ("tombstones",),
    ("broker", "--help"),
    ("demo", "--help"),
    ("doctor",),
    ("serve", "--help"),
    ("token", "shop", "--rights", "put"),
    ("namespaces",),
    ("topology", "show"),
    ("topology", "export", "--all"),
    ("topology", "verify"),
    ("explain", "1h"),
    ("--help",),
    ("--version",),
]

Run = Callable[..., subprocess.CompletedProcess[str]]


@contextmanager
def pipe_without_a_reader() -> Iterator[int]:
    """Open the writing end of a pipe whose reader is gone."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)


@pytest.fixture
def run(program: list[str], options: list[str]) -> Run:
    """Run the command line with a closed pipe as its stdout, or else as its stderr."""

    def run_it(
        *arguments: str, closed: str = "stdout", input: str = ""
    ) -> subprocess.CompletedProcess[str]:
        with pipe_without_a_reader() as nowhere:
            return subprocess.run(
                [*program, *options, *arguments],
                stdout=nowhere if closed == "stdout" else subprocess.PIPE,
                stderr=nowhere if closed == "stderr" else subprocess.PIPE,
                input=input,
                text=True,
                timeout=patience(60),
                check=False,
            )

    return run_it


@pytest.fixture
def moved(client: Client, rabbitdelay: CommandLine) -> str:
    """Jobs in all states that the commands need, and one of them as `put --json` prints it."""
    for topic in ("t", "print", "pop", "paused", "resumed", "purged", "buried"):
        client.put(topic, id=topic)
    client.put("pop")
    client.put("buried", id="grave")
    for _ in range(2):
        pop(client, "buried").bury("as the test wants it")
    client.pause("resumed")
    return rabbitdelay("put", "t", "--id", "moved", "--delay", "1h", "--json").stdout


def test_a_closed_pipe_ends_every_command_silently_with_141(run: Run, moved: str) -> None:
    with ThreadPoolExecutor(COMMANDS_AT_A_TIME) as executor:
        done = executor.map(lambda command: run(*command, input=moved), COMMANDS)
        found = {
            command: (result.returncode, "" if command[0] == "consume" else result.stderr)
            for command, result in zip(COMMANDS, done, strict=True)
        }
    assert found == dict.fromkeys(COMMANDS, (141, ""))


def test_every_command_is_tested_with_a_closed_pipe() -> None:
    assert set(root.commands) <= {command[0] for command in COMMANDS}


def test_an_error_message_without_a_reader_ends_a_command_with_141(run: Run) -> None:
    assert run("explain", "soon", closed="stderr").returncode == 141
    assert run("--url", "amqp://127.0.0.1:1", "topics", closed="stderr").returncode == 141


def test_consume_gives_back_a_job_that_it_cannot_print(client: Client, run: Run) -> None:
    """Its log on stderr does not report a failed job."""
    client.put("t", 1)
    done = run("consume", "t", "--print")
    assert done.returncode == 141
    assert "failed" not in done.stderr
    with pop(client, "t") as job:
        assert job.body == 1


def test_head_ends_consume_before_the_next_job(
    client: Client, program: list[str], options: list[str]
) -> None:
    client.put("t", "only one")
    command = shlex.join([*program, *options, "consume", "t", "--print"])
    script = f'{command} | head -n 1; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=patience(60), check=False
    )
    line, code = done.stdout.splitlines()
    assert '"body": "only one"' in line
    assert code == "141"


def test_consume_fails_when_it_cannot_print_to_a_full_disk(
    client: Client, program: list[str], options: list[str]
) -> None:
    client.put("t", 1)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*program, *options, "consume", "t", "--print"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=patience(60),
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.endswith("error: [Errno 28] No space left on device\n")
    with pop(client, "t") as job:
        assert job.body == 1
