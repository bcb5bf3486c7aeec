"""Print the packages of a report of `pip install --dry-run` as constraints, one pin per line.

python scripts/write_lock.py REPORT > constraints.txt
"""

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

HEADER = """\
# The versions of all packages that development and CI use. Users get what pyproject.toml allows.
# Written by `make lock`: do not edit. scripts/bootstrap installs them.
"""


def main() -> None:
    """Print the pins, unless one of them needs a later Python than the package."""
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    report = json.loads(Path(sys.argv[1]).read_text())
    found = [item["metadata"] for item in report["install"]]
    packages = [package for package in found if package["name"] != project["name"]]
    oldest = _version(project["requires-python"])
    too_new = [package["name"] for package in packages if _oldest_python(package) > oldest]
    if too_new:
        text = ".".join(map(str, oldest))
        sys.exit(f"error: {', '.join(too_new)}: needs a later Python: run with PYTHON=python{text}")
    versions = {_normal(package["name"]): package["version"] for package in packages}
    pins = [f"{name}=={versions[name]}\n" for name in sorted(versions)]
    sys.stdout.write(HEADER + "".join(pins))


def _oldest_python(package: dict[str, Any]) -> tuple[int, ...]:
    return _version(package.get("requires_python", ""))


def _version(specifier: str) -> tuple[int, ...]:
    """Return the lower bound of a specifier such as `>=3.11,!=3.11.1`."""
    bound = re.search(r">=\s*(\d+)\.(\d+)", specifier)
    return tuple(map(int, bound.groups())) if bound else (0, 0)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
