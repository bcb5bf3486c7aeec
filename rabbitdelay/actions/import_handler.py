"""The handler action: `--handler package.module:function`, found and imported."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rabbitdelay.errors import InvalidConfiguration

_FORM = "write it as package.module:function"


def load_handler(name: str) -> Callable[..., Any]:
    """Import what `package.module:function` names; modules of the current directory come first."""
    module_name, _, attributes = name.partition(":")
    if not _is_dotted(module_name) or not _is_dotted(attributes):
        raise InvalidConfiguration(f"{name!r} is no handler: {_FORM}")
    _look_in_current_directory()
    found: Any = _import(module_name)
    for attribute in attributes.split("."):
        found = _attribute(found, attribute, name)
    if not callable(found):
        raise InvalidConfiguration(
            f"{name} is a {type(found).__name__}, and not a function that takes a job"
        )
    return found  # type: ignore[no-any-return]  # whatever it takes, it can be called


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _look_in_current_directory() -> None:
    """Let `python -m` and an installed script find the same modules."""
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    importlib.invalidate_caches()


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise InvalidConfiguration(_missing(name, error.name)) from None
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _missing(name: str, missing: str) -> str:
    if name.endswith(".py"):
        return f"there is no module {name}: {_FORM}, without .py"
    return f"there is no module {missing} in {Path.cwd()} or among the installed packages"


def _broken(name: str, error: BaseException) -> InvalidConfiguration:
    return InvalidConfiguration(f"module {name} fails on import: {type(error).__name__}: {error}")


def _attribute(owner: object, attribute: str, name: str) -> object:
    try:
        return getattr(owner, attribute)
    except AttributeError:
        what = getattr(owner, "__name__", type(owner).__name__)
        raise InvalidConfiguration(f"{what} has no {attribute}, in {name}") from None
