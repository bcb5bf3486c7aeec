"""README.md and the pages of docs/: their programs run, and their commands exist."""

import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rabbitdelay import Client
from rabbitdelay.private_broker.machine.ports import pick_free
from tests.support.patience import patience
from tests.support.programs import command_line
from tests.support.programs.script import Process

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
FILES_ELSEWHERE = {"wire-format.md", "testing.md"}
"""Their programs are run by other tests: files of examples/plain_amqp, and tests of pytest."""
RUN = "import sys; from tests.support.programs.documented_program import main; main(*sys.argv[1:])"
pytestmark = pytest.mark.usefixtures("nothing_set")


@dataclass(frozen=True, slots=True)
class Program:
    """A Python block of a page."""

    page: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def work(self) -> "Work | None":
        """A job, and what the program prints before it is stopped; None if it ends by itself."""
        if "worker.run()" in self.text:
            return Work("orderclose", {"order": 42}, "order 42 was not paid: closed")
        if "worker.run(handle_signals=False)" in self.text:
            return Work("mail", {"to": "a@example.org"}, "sent to a@example.org")
        if "GatewayApp(" in self.text:
            return Work("orderclose", {"order": 42}, "the gateway is at /queue/v1")
        return None


@dataclass(frozen=True, slots=True)
class Work:
    """A job for a program's worker, and the line that the worker prints when it is done."""

    topic: str
    body: dict[str, Any]
    printed: str


def _programs(page: Path) -> list[Program]:
    text = page.read_text()
    found = re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [Program(page, text[: one.start()].count("\n") + 1, one[1]) for one in found]


PROGRAMS = [one for page in PAGES if page.name not in FILES_ELSEWHERE for one in _programs(page)]
COMMANDS = {
    command: None
    for page in PAGES
    for pair in re.findall(
        r"^\$ (?:\.venv/bin/)?(rabbitdelay .*?)(?:\s{2,}#.*)?$|`(rabbitdelay [a-z][^`]*)`",
        page.read_text(),
        re.MULTILINE,
    )
    for command in pair
    if command and not re.search("[|<>…]", command)  # no pipes, redirections or ellipses
}


@pytest.fixture
def environment(
    nothing_set: None,  # noqa: ARG001 - must run first
    broker_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Set the broker's URL and unbuffered output."""
    monkeypatch.setenv("RABBITDELAY_URL", broker_url)
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")


def test_the_programs_pass_mypy_strict(tmp_path: Path) -> None:
    """They are checked as by a user's mypy, without the settings of this repository."""
    files = [tmp_path / f"program_{number}.py" for number in range(len(PROGRAMS))]
    for file, program in zip(files, PROGRAMS, strict=True):
        file.write_text(f"# {program}\n{program.text}")
    options = ("--strict", "--config-file=", "--cache-dir", str(ROOT / ".mypy_cache" / "docs"))
    command = [sys.executable, "-m", "mypy", *options, *map(str, files)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_service_ends_if_its_worker_finds_no_broker(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guide's program stops the server, which would otherwise continue without a worker."""
    (program,) = (one for one in PROGRAMS if "running.add_done_callback(stop_server)" in one.text)
    file = tmp_path / "program.py"
    file.write_text(program.text)
    monkeypatch.setenv("RABBITDELAY_URL", f"amqp://127.0.0.1:{pick_free(1)[0]}")
    command = [sys.executable, "-c", RUN, namespace, str(file)]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=patience(60), check=False
    )
    assert "the worker failed: amqp://guest:***@127.0.0.1" in ended.stdout, ended.stderr
    assert "Application shutdown" in ended.stderr


@pytest.mark.usefixtures("environment", "existing_namespace")
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_program_runs_unchanged(
    program: Program, broker_url: str, namespace: str, tmp_path: Path
) -> None:
    """The namespace is the test's own. A worker gets a job, and is ended as in production."""
    file = tmp_path / "program.py"
    file.write_text(program.text.replace('namespace="rabbitdelay"', f'namespace="{namespace}"'))
    work = program.work
    if work is not None:
        with Client(broker_url, namespace=namespace, stabilise_seconds=0) as client:
            client.put(work.topic, work.body)
    with Process(RUN, namespace, str(file)) as process:
        if work is not None:
            process.wait_for(work.printed, seconds=30)
            process.signal(signal.SIGTERM)
        # Uvicorn raises the signal again after the application has shut down.
        expected = {0, -signal.SIGTERM} if "FastAPI(" in program.text else {0}
        assert process.wait(patience(60)) in expected, process.errors
    assert bool(process.lines) == ("print(" in program.text)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_accepted(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, *arguments = shlex.split(command)
    monkeypatch.chdir(tmp_path)
    for file in re.findall(r"\S+\.(?:jsonl?|txt)", command):
        (tmp_path / file).touch()
    command_line.check(arguments, monkeypatch)


def test_the_pages_contain_programs_and_commands() -> None:
    assert len(PROGRAMS) >= 20
    assert len(COMMANDS) >= 20
