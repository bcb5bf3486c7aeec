"""The README: its programs run, its promises have tests, its commands exist."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rabbitdelay import Client
from tests.support import command_line

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
PROMISES = re.findall(r"`(test_\w+\.py)(?:::(\w+))?`", README)
COMMANDS = re.findall(r"^\$ \.venv/bin/(rabbitdelay .*?)(?:\s{2,}#.*)?$", README, re.MULTILINE)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_runs_as_it_stands(program: str, broker_url: str, namespace: str) -> None:
    """But for the namespace, which is that of the test, and for a worker's end."""
    here = program.replace('namespace="rabbitdelay"', f'namespace="{namespace}"')
    here = here.replace("Client()", f'Client(namespace="{namespace}")')
    here = here.replace("concurrency=10)", f'concurrency=10, namespace="{namespace}")')
    if "worker.run()" in here:
        here = here.replace("worker.run()", "worker.run(max_jobs=1)")
        with Client(broker_url, namespace=namespace, settle_seconds=0) as client:
            client.put("orderclose", {"order": 42})
    done = subprocess.run(
        [sys.executable, "-c", here],
        env=os.environ | {"RABBITDELAY_URL": broker_url},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize(("file", "test"), PROMISES)
def test_a_promise_has_its_test(file: str, test: str) -> None:
    (path,) = (ROOT / "tests").rglob(file)
    assert not test or f"def {test}(" in path.read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_one(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, *arguments = shlex.split(command)
    command_line.check(arguments, monkeypatch)


def test_there_is_something_to_check() -> None:
    assert len(PROGRAMS) >= 5
    assert len(PROMISES) >= 14
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize(
    "page", sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]), ids=str
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
