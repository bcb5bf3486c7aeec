"""A view of a RabbitMQ installation that contains only the plugins that a private node runs.

A node with only the 26 to 31 plugins it needs, instead of all 70 to 82, starts faster. Measured on
two busy cores, medians of six alternating starts each: 6.9 s against 9.7 s (RabbitMQ 3.10), 4.0 s
against 7.2 s (4.3). The cause was not measured, but Erlang does search every plugin's folder for
its modules.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from rabbitdelay.private_broker.installation.installation import Installation

_WANTED = ("rabbit", "rabbitmq_management")
_APPLICATIONS = re.compile(r"\{applications,\s*\[(?P<names>[^\]]*)\]")
_NAME = re.compile(r"[a-z]\w*")


def write_view(installation: Installation, view: Path) -> bool:
    """Recreate the folder `view`; return False if the installation has an unexpected layout."""
    shutil.rmtree(view, ignore_errors=True)
    home = installation.home
    resources = _resource_files(installation.outside(home))
    if not resources.keys() >= set(_WANTED):
        return False
    (view / "plugins").mkdir(parents=True)
    (view / "sbin").symlink_to(home / "sbin")
    for name in _needed(resources):
        folder = resources[name].parent.parent.name
        (view / "plugins" / folder).symlink_to(home / "plugins" / folder)
    return True


def _resource_files(home: Path) -> dict[str, Path]:
    """Return the application resource file of every plugin, by plugin name."""
    return {file.stem: file for file in home.glob("plugins/*/ebin/*.app")}


def _needed(resources: Mapping[str, Path]) -> set[str]:
    """Return the wanted plugins and their transitive dependencies."""
    needed: set[str] = set()
    pending = list(_WANTED)
    while pending:
        name = pending.pop()
        if name in resources and name not in needed:
            needed.add(name)
            pending.extend(_dependencies(resources[name].read_text()))
    return needed


def _dependencies(resource: str) -> Iterator[str]:
    found = _APPLICATIONS.search(resource)
    return iter(_NAME.findall(found["names"]) if found else ())
