"""Dependencies: what is imported is declared, and drivers are used in the documented way.

What a driver does not document is used in one file for each driver, whose contract is tested.
constraints.txt pins everything that development needs, and agrees with pyproject.toml.
"""

import ast
import re
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "rabbitdelay").rglob("*.py"))
DRIVERS = ("pika", "aio-pika", "aiormq", "pamqp")
INTERNALS = {"sync/driver/pika_internals.py", "aio/driver/aiormq_internals.py"}
UNDOCUMENTED = re.compile(
    r"_adapter_emit_data|_on_data_available|_MAX_RECV_BYTES|\b_sock\b|transport_factory"
    r"|write_queue|ChannelFrame|connection_tune|\.transport\.connection\b"
)


def declared() -> dict[str, str]:
    """Return the requirements of the package and its extras by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    texts = [*project["dependencies"], *(text for extra in extras for text in extra)]
    requirements = [re.split(r"(?=[<>=~!])", text, maxsplit=1) for text in texts]
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


def test_exactly_the_imported_packages_are_declared() -> None:
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


def required() -> list[Requirement]:
    """Return what the package and its development require."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = pyproject["dependency-groups"].values()
    found = [*pyproject["project"]["dependencies"], *(one for group in groups for one in group)]
    return [Requirement(one) for one in found if isinstance(one, str)]


def pins() -> dict[str, str]:
    """Return the versions in constraints.txt by name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def is_needed(requirement: Requirement) -> bool:
    """Whether this version of Python needs it, without extras."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def test_the_lock_pins_versions_that_pyproject_allows() -> None:
    locked = pins()
    for requirement in required():
        version = locked.get(normal(requirement.name), "none")
        assert requirement.specifier.contains(version), f"{requirement}: run `make lock`"


def test_the_lock_pins_every_requirement_of_the_pinned_packages() -> None:
    """On this version of Python: another one may require more, which the test says there."""
    locked, seen = pins(), set[str]()
    left = [requirement.name for requirement in required()]
    while left:
        name = normal(left.pop())
        assert name in locked, f"{name}: run `make lock`"
        seen.add(name)
        with suppress(PackageNotFoundError):  # `make test-lowest` installs only some of them
            found = [Requirement(text) for text in requires(name) or ()]
            left += [one.name for one in found if is_needed(one) and normal(one.name) not in seen]


def test_the_lock_names_no_index_path_or_platform() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"#.*|[a-z0-9-]+==[0-9.]+", line)] == []


def test_the_lowest_allowed_version_of_each_dependency_is_declared() -> None:
    assert all(re.match(r">=[\d.]+", bound) for bound in declared().values())


def test_ci_runs_make_targets_only() -> None:
    (job,) = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    matrix = job["strategy"]["matrix"]
    assert [step["run"] for step in job["steps"] if "run" in step] == ["make ${{ matrix.target }}"]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {*matrix["target"], *(one["target"] for one in matrix["include"])} <= set(targets)
