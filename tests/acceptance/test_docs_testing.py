"""docs/testing.md: its modules are a project whose tests pass."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import patience

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text()
BLOCKS = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE, re.DOTALL)
TESTS = [name for name, _ in BLOCKS if name.startswith("test_")]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the modules of the page."""
    for name, text in BLOCKS:
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    return tmp_path


def run(
    project: Path, test: str, monkeypatch: pytest.MonkeyPatch, url: str
) -> subprocess.CompletedProcess[str]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RABBITDELAY_TEST_URL", url)
    command = [sys.executable, "-m", "pytest", "-q", test]
    return subprocess.run(
        command, cwd=project, capture_output=True, text=True, timeout=patience(60), check=False
    )


def test_every_block_of_the_page_is_a_module() -> None:
    assert len(BLOCKS) == PAGE.count("```python")
    assert len(TESTS) > 5


@pytest.mark.parametrize("test", TESTS)
def test_the_tests_of_the_page_pass(
    project: Path, test: str, monkeypatch: pytest.MonkeyPatch, broker_url: str
) -> None:
    done = run(project, test, monkeypatch, broker_url)
    assert done.returncode == 0, done.stdout + done.stderr
