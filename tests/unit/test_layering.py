"""The layers: imports go down only, and the core does no I/O."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "rabbitdelay"
LAYERS = [
    {"errors"},
    {"duration", "address", "system_time"},
    {"models"},
    {"core"},
    {"engine"},
    {"private_broker"},
    {"discovery"},
    {"executors"},
    {"sync", "aio"},
    {"__init__"},
    {"actions"},
    {"demo"},
    {"testing"},
    {"gateway"},
    {"cli"},
    {"__main__"},
]
FORBIDDEN_IN_CORE = {
    *("asyncio", "logging", "os", "pathlib", "pika", "random", "secrets", "select", "socket"),
    *("subprocess", "threading", "time", "urllib", "concurrent", "multiprocessing", "aio_pika"),
}
FILES = sorted(PACKAGE.rglob("*.py"))


def layer(module: str) -> int:
    """Return the layer of a module such as `rabbitdelay.core.topology.ladder`."""
    parts = module.split(".")
    name = parts[1] if len(parts) > 1 else "__init__"
    found = [index for index, names in enumerate(LAYERS) if name in names]
    return found[0] if found else LAYERS.index({"__init__"})  # `from rabbitdelay import Client`


def imports(path: Path) -> set[str]:
    """Return every module that a file imports, in whichever syntax."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written out"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def module_of(path: Path) -> str:
    return ".".join(["rabbitdelay", *path.relative_to(PACKAGE).with_suffix("").parts])


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_go_down_only(path: Path) -> None:
    for imported in imports(path):
        if imported.split(".")[0] == "rabbitdelay":
            assert layer(imported) <= layer(module_of(path)), f"imports {imported}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "core").rglob("*.py")), ids=module_of)
def test_the_core_does_no_io(path: Path) -> None:
    used = {name.split(".")[0] for name in imports(path)}
    assert not used & FORBIDDEN_IN_CORE


def test_a_program_with_a_url_does_not_load_the_private_broker() -> None:
    """Pika itself imports subprocess, by way of asyncio."""
    code = (
        "import sys, rabbitdelay, rabbitdelay.aio\n"
        "rabbitdelay.Client('amqp://localhost')\n"
        "print(*(name for name in sys.modules if name.startswith('rabbitdelay.private_broker')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_every_top_level_module_has_a_layer() -> None:
    names = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES}
    assert names <= set().union(*LAYERS)
