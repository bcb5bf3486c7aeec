"""The handler action: import the function that `--handler package.module:function` names."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rabbitdelay.errors import InvalidConfiguration

_FORM = "write it as package.module:function"


def load_handler(name: str) -> Callable[..., Any]:
    """Import the function `package.module:function`; the current directory is searched first."""
    module_name, _, attributes = name.partition(":")
    if not _is_dotted(module_name) or not _is_dotted(attributes):
        raise InvalidConfiguration(f"{name!r} is not a handler: {_FORM}")
    _search_current_directory()
    found: Any = _import(module_name)
    for attribute in attributes.split("."):
        found = _attribute(found, attribute, name)
    if not callable(found):
        raise InvalidConfiguration(
            f"{name} is of type {type(found).__name__}: it must be a function that takes a job"
        )
    return found  # type: ignore[no-any-return]  # any callable


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _search_current_directory() -> None:
    """Put the current directory first, so that scripts find the same modules as `python -m`."""
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
        return f"module {name} not found: {_FORM}, without .py"
    return f"module {missing} not found in {Path.cwd()} or among the installed packages"


def _broken(name: str, error: BaseException) -> InvalidConfiguration:
    return InvalidConfiguration(f"importing module {name} failed: {type(error).__name__}: {error}")


def _attribute(owner: object, attribute: str, name: str) -> object:
    try:
        return getattr(owner, attribute)
    except AttributeError:
        owner_name = getattr(owner, "__name__", type(owner).__name__)
        raise InvalidConfiguration(
            f"{name} not found: {owner_name} has no attribute {attribute}"
        ) from None
