"""Node.js, and the packages that a package-lock.json names: without npm.

Debian's nodejs is 13 packages and 3 s; its npm is 387 and half a minute. A lock file names each
package's archive and its hash, so fetching them takes no npm.
"""

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from urllib.request import urlopen

import pytest

REPOSITORY = Path(__file__).parents[2]
_CACHE = REPOSITORY / ".cache" / "node"
_REGISTRY = "https://registry.npmjs.org/"
_TIMEOUT_SECONDS = 30.0


def find_node() -> str:
    """Where node is; installed with apt when it is missing, and a failure when that fails."""
    if shutil.which("node") is None:
        _install()
    node = shutil.which("node")
    return node or pytest.fail("node is missing: apt-get install nodejs", pytrace=False)


def install_packages(lock_file: Path) -> Path:
    """The node_modules folder of a lock file, fetched on first use."""
    text = lock_file.read_bytes()
    folder = _CACHE / hashlib.sha256(text).hexdigest()[:16] / "node_modules"
    if not folder.exists():
        packages: dict[str, dict[str, str]] = json.loads(text)["packages"]
        _fill(folder, {path: lock for path, lock in packages.items() if path})
    return folder


def _install() -> None:
    script = REPOSITORY / "scripts" / "install-packages"
    done = subprocess.run([script, "nodejs"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"node is missing. {done.stderr.strip()}", pytrace=False)


def _fill(folder: Path, packages: dict[str, dict[str, str]]) -> None:
    """Unpack beside it and rename: another run may be doing the same."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        for path, lock in packages.items():
            _unpack(_fetch(lock["resolved"], lock["integrity"]), Path(scratch) / path)
        try:
            (Path(scratch) / "node_modules").rename(folder)
        except OSError:
            assert folder.exists()


def _fetch(url: str, integrity: str) -> bytes:
    registry = os.environ.get("NPM_CONFIG_REGISTRY", _REGISTRY).rstrip("/") + "/"
    with urlopen(url.replace(_REGISTRY, registry), timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310 - the lock file says https
        archive: bytes = response.read()
    algorithm, _, expected = integrity.partition("-")
    actual = base64.b64encode(hashlib.new(algorithm, archive).digest()).decode()
    assert actual == expected, f"{url} is not what the lock file names"
    return archive


def _unpack(archive: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            if content := tar.extractfile(member):
                file = folder / member.name.partition("/")[2]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content.read())
