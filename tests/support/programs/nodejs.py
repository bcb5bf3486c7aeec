"""Node.js and the packages of a package-lock.json, installed with the machine's npm."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.patience import patience

REPOSITORY = Path(__file__).parents[3]
_CACHE = REPOSITORY / ".cache" / "node"
_TIMEOUT_SECONDS = patience(120)


def find_node() -> str:
    """Return the path of node, installing it with apt if it is missing; fail if that fails."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        _install()
    node = shutil.which("node")
    return node or pytest.fail("node is missing: apt-get install nodejs npm", pytrace=False)


def install_packages(lock_file: Path) -> Path:
    """Return the node_modules folder for a lock file, installing the packages on first use."""
    folder = _CACHE / hashlib.sha256(lock_file.read_bytes()).hexdigest()[:16]
    if not (folder / "node_modules" / ".package-lock.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in (lock_file.name, "package.json"):
            shutil.copy(lock_file.with_name(name), folder)
        _run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)
    return folder / "node_modules"


def _install() -> None:
    _run([str(REPOSITORY / "scripts" / "install-packages"), "nodejs", "npm"], REPOSITORY)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"{' '.join(command)} failed: {done.stderr.strip()}", pytrace=False)
