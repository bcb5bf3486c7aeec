"""Importing a handler by name, from the current directory or with a clear error."""

import inspect
import os.path
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rabbitdelay.actions.import_handler import load_handler
from rabbitdelay.errors import InvalidConfiguration

MODULE = """
class Shop:
    def close(self, job):
        return f"closed {job}"

shop = Shop()
number = 42

def handle(job):
    return f"handled {job}"

async def handle_later(job):
    pass
"""


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Enter a directory with modules, and unload them afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    package = tmp_path / "handlers_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "inner.py").write_text(MODULE)
    (tmp_path / "handlers_module.py").write_text(MODULE)
    (tmp_path / "handlers_needy.py").write_text("import module_that_is_not_there\n")
    (tmp_path / "handlers_broken.py").write_text("raise RuntimeError('no database')\n")
    (tmp_path / "handlers_wrong.py").write_text("def handle(job:\n")
    (tmp_path / "handlers_leaving.py").write_text("raise SystemExit(7)\n")
    yield
    for name in [name for name in sys.modules if name.startswith("handlers_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("handlers_module:handle", "handled it"),
        ("handlers_package.inner:handle", "handled it"),
        ("handlers_module:shop.close", "closed it"),
    ],
)
def test_a_handler_is_found_by_its_name(name: str, result: str) -> None:
    assert load_handler(name)("it") == result


def test_a_handler_may_be_async_or_in_an_installed_module() -> None:
    assert inspect.iscoroutinefunction(load_handler("handlers_module:handle_later"))
    assert load_handler("os.path:basename") is os.path.basename


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("handlers_module", "not a handler: write it as package.module:function"),
        ("handlers_module:", "not a handler"),
        (":handle", "not a handler"),
        ("", "not a handler"),
        (".handlers_module:handle", "not a handler"),
        ("handlers_module:handle()", "not a handler"),
        ("./handlers_module.py:handle", "not a handler"),
        ("handlers_module.py:handle", r"without \.py"),
        ("handlers_nowhere:handle", "module handlers_nowhere not found in /"),
        ("handlers_package.nowhere:handle", r"module handlers_package\.nowhere not found"),
        ("handlers_nowhere.inner:handle", "module handlers_nowhere not found in /"),
        (
            "handlers_needy:handle",
            "handlers_needy failed: ModuleNotFoundError: .*'module_that_is_not_there'",
        ),
        ("handlers_broken:handle", "failed: RuntimeError: no database"),
        ("handlers_wrong:handle", "failed: SyntaxError"),
        ("handlers_leaving:handle", "failed: SystemExit: 7"),
        ("handlers_module:handel", "handlers_module has no attribute handel"),
        ("handlers_module:shop.open", "Shop has no attribute open"),
        ("handlers_module:number", "is of type int: it must be a function"),
    ],
)
def test_a_handler_that_cannot_be_imported_is_rejected(name: str, error: str) -> None:
    with pytest.raises(InvalidConfiguration, match=error):
        load_handler(name)


def test_the_current_directory_comes_first_and_once() -> None:
    load_handler("handlers_module:handle")
    load_handler("handlers_module:handle")
    assert sys.path[0] == str(Path.cwd())
    assert sys.path.count(str(Path.cwd())) == 1
