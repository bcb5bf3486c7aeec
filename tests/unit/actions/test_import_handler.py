"""Handlers by name: found in the current directory, or a clear error."""

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
    """A current directory with modules in it, of which nothing stays imported."""
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
def test_a_handler_is_found(name: str, result: str) -> None:
    assert load_handler(name)("it") == result


def test_a_handler_may_be_async_or_of_an_installed_module() -> None:
    assert inspect.iscoroutinefunction(load_handler("handlers_module:handle_later"))
    assert load_handler("os.path:basename") is os.path.basename


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("handlers_module", "no handler: write it as package.module:function"),
        ("handlers_module:", "no handler"),
        (":handle", "no handler"),
        ("", "no handler"),
        (".handlers_module:handle", "no handler"),
        ("handlers_module:handle()", "no handler"),
        ("./handlers_module.py:handle", "no handler"),
        ("handlers_module.py:handle", r"without \.py"),
        ("handlers_nowhere:handle", "there is no module handlers_nowhere in /"),
        ("handlers_package.nowhere:handle", r"there is no module handlers_package\.nowhere"),
        ("handlers_nowhere.inner:handle", "there is no module handlers_nowhere in /"),
        (
            "handlers_needy:handle",
            "handlers_needy fails on import: ModuleNotFoundError: .*'module_that_is_not_there'",
        ),
        ("handlers_broken:handle", "fails on import: RuntimeError: no database"),
        ("handlers_wrong:handle", "fails on import: SyntaxError"),
        ("handlers_leaving:handle", "fails on import: SystemExit: 7"),
        ("handlers_module:handel", "handlers_module has no handel"),
        ("handlers_module:shop.open", "Shop has no open"),
        ("handlers_module:number", "is a int, and not a function"),
    ],
)
def test_a_handler_that_cannot_be_had(name: str, error: str) -> None:
    with pytest.raises(InvalidConfiguration, match=error):
        load_handler(name)


def test_the_current_directory_comes_first_and_once() -> None:
    load_handler("handlers_module:handle")
    load_handler("handlers_module:handle")
    assert sys.path[0] == str(Path.cwd())
    assert sys.path.count(str(Path.cwd())) == 1
