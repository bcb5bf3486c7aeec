"""A view of a RabbitMQ installation that holds only the plugins a private node runs.

A node with the 26 to 31 plugins that it needs, in place of all 70 to 82, starts sooner. Measured
on two busy cores, medians of six starts each, in turns: 6.9 s against 9.7 (RabbitMQ 3.10), 4.0 s
against 7.2 (4.3). Why was not measured; Erlang does search every plugin's folder for its modules.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from rabbitdelay.private_broker.installation import Installation

_WANTED = ("rabbit", "rabbitmq_management")
_APPLICATIONS = re.compile(r"\{applications,\s*\[(?P<names>[^\]]*)\]")
_NAME = re.compile(r"[a-z]\w*")


def write_view(installation: Installation, view: Path) -> bool:
    """Make the folder `view` anew; False when the installation has another shape than expected."""
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
    """The application resource file of every plugin, by name."""
    return {file.stem: file for file in home.glob("plugins/*/ebin/*.app")}


def _needed(resources: Mapping[str, Path]) -> set[str]:
    """The wanted plugins, and the ones they need."""
    needed: set[str] = set()
    waiting = list(_WANTED)
    while waiting:
        name = waiting.pop()
        if name in resources and name not in needed:
            needed.add(name)
            waiting.extend(_dependencies(resources[name].read_text()))
    return needed


def _dependencies(resource: str) -> Iterator[str]:
    found = _APPLICATIONS.search(resource)
    return iter(_NAME.findall(found["names"]) if found else ())
