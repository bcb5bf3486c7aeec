"""Dependencies: what is imported is declared, and drivers are used in the documented way.

What a driver does not document is used in one file for each driver, whose contract is tested.
"""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "rabbitdelay").rglob("*.py"))
DRIVERS = ("pika", "aio-pika", "aiormq", "pamqp")
INTERNALS = {"sync/driver/pika_internals.py", "aio/driver/aiormq_internals.py"}
UNDOCUMENTED = re.compile(
    r"_adapter_emit_data|_on_data_available|_MAX_RECV_BYTES|\b_sock\b|transport_factory"
    r"|write_queue|ChannelFrame|connection_tune|\.transport\.connection\b"
)


def declared() -> dict[str, str]:
    """Return the requirements of the package by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [re.split(r"(?=[<>=~!])", text, maxsplit=1) for text in project["dependencies"]]
    return {name.strip(): rest for name, rest in requirements}


def imported(path: Path) -> set[str]:
    """Return the packages that a file imports, by their first name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module.partition(".")[0])
    return found


def test_what_is_imported_is_declared_and_nothing_else() -> None:
    names = set().union(*map(imported, FILES)) - set(sys.stdlib_module_names) - {"rabbitdelay"}
    assert {name.replace("_", "-") for name in names} == declared().keys()


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_driver_is_capped_below_its_next_breaking_version(driver: str) -> None:
    assert re.fullmatch(r">=[\d.]+,<\d+", declared()[driver])


@pytest.mark.parametrize(
    ("driver", "folder"), [("pika", "sync"), ("aiormq", "aio"), ("pamqp", "aio")]
)
def test_a_driver_is_imported_in_one_folder(driver: str, folder: str) -> None:
    users = {path.parent for path in FILES if driver in imported(path)}
    assert users == {ROOT / "rabbitdelay" / folder / "driver"}


def test_outside_its_folder_aio_pika_is_only_the_type_of_a_lent_connection() -> None:
    driver = ROOT / "rabbitdelay" / "aio" / "driver"
    users = [path for path in FILES if "aio_pika" in imported(path) and path.parent != driver]
    assert {path.name for path in users} == {"client.py", "worker.py"}
    for path in users:
        assert re.findall(r"aio_pika.* import .*", path.read_text()) == [
            "aio_pika import Connection"
        ]


def test_undocumented_parts_of_drivers_are_used_in_one_file_for_each() -> None:
    users = {
        path.relative_to(ROOT / "rabbitdelay").as_posix()
        for path in FILES
        if UNDOCUMENTED.search(path.read_text())
    }
    assert users == INTERNALS
