"""Find RabbitMQ on this machine and build the command lines that run it."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rabbitdelay.errors import BrokerProcessError

SERVER_VARIABLE = "RABBITDELAY_RABBITMQ_SERVER"
ROOT_VARIABLE = "RABBITDELAY_RABBITMQ_ROOT"
HOW_TO_GET_RABBITMQ = (
    "No rabbitmq-server was found on this machine and no Docker engine is running: "
    "run `apt-get install rabbitmq-server`, or start Docker."
)

# Packages put a wrapper named `rabbitmq-server` on the PATH that switches to the user `rabbitmq`,
# which cannot write to our folders. These are the real scripts, which run as the calling user.
_SERVER_PATTERNS = (
    "usr/lib/rabbitmq/bin/rabbitmq-server",
    "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server",
    "opt/rabbitmq/sbin/rabbitmq-server",
    "opt/homebrew/opt/rabbitmq/sbin/rabbitmq-server",
    "usr/local/opt/rabbitmq/sbin/rabbitmq-server",
)
_EPMD_PATTERNS = (
    "usr/bin/epmd",
    "usr/local/bin/epmd",
    "opt/homebrew/bin/epmd",
    "usr/lib/erlang/bin/epmd",
    "usr/lib/erlang/erts-*/bin/epmd",
    "usr/local/lib/erlang/erts-*/bin/epmd",
)
_WRAPPER_NAME = "rabbitmq-script-wrapper"
_PATH_INSIDE_ROOT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The mounts belong to the process's own mount namespace and vanish with it; `exec` keeps the pid.
# The overlay leaves the root unmodified, so any number of nodes can share one.
_RUN_IN_ROOT = """
set -e
root=$1 broker=$2 scratch=$3
shift 3
mkdir -p "$scratch"
mount -t tmpfs tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/merged"
mount -t overlay overlay "$scratch/merged" \
    -o "lowerdir=$root,upperdir=$scratch/upper,workdir=$scratch/work"
merged=$scratch/merged
for folder in proc sys dev; do mount --rbind "/$folder" "$merged/$folder"; done
cp /etc/hosts "$merged/etc/hosts"
mkdir -p "$merged$broker"
mount --bind "$broker" "$merged$broker"
exec chroot "$merged" "$@"
"""


@dataclass(frozen=True, slots=True)
class Installation:
    """A RabbitMQ that can run here, either installed on the machine or inside a root folder."""

    server: Path  # as seen from inside the root
    epmd: Path
    root: Path | None = None

    @property
    def home(self) -> Path:
        """Folder with RabbitMQ's own `sbin` and `plugins`."""
        server = self.outside(self.server).resolve()
        return Path("/") / server.parent.parent.relative_to(self.outside(Path("/")).resolve())

    @property
    def version(self) -> str:
        """RabbitMQ's version, read from the names of its folders."""
        plugins = self.outside(self.home / "plugins")
        found = sorted(folder.name for folder in plugins.glob("rabbit-[0-9]*"))
        return found[-1].removeprefix("rabbit-") if found else "unknown"

    def outside(self, path: Path) -> Path:
        """Return the path on the machine of a path inside the root."""
        return path if self.root is None else self.root / path.relative_to("/")

    def command(self, program: Sequence[str], *, broker: Path, scratch: Path) -> list[str]:
        """Return the command line that runs `program`, with `broker` mounted if it is in a root."""
        if self.root is None:
            return list(program)
        folders = (str(self.root), str(broker), str(scratch))
        return ["unshare", "--mount", "sh", "-c", _RUN_IN_ROOT, "sh", *folders, *program]

    def search_path(self, environment: Mapping[str, str]) -> str:
        """Return a PATH on which `erl` and the shell's tools are found."""
        if self.root is not None:
            return _PATH_INSIDE_ROOT
        return environment.get("PATH", _PATH_INSIDE_ROOT)


def find_installation(
    root: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Installation | None:
    """Return the RabbitMQ that the variables name, or else the first one found."""
    root = root or _path_from(environment, ROOT_VARIABLE)
    base = root or Path("/")
    server = _path_from(environment, SERVER_VARIABLE) or _find_server(base, environment)
    epmd = _first(_matches(base, _EPMD_PATTERNS)) or _on_path("epmd", base, environment)
    if server is None or epmd is None:
        _refuse_empty_root(root)
        return None
    return Installation(server=server, epmd=epmd, root=root)


def require_installation(root: Path | None = None) -> Installation:
    """Return the RabbitMQ to run, or raise an error that says how to install one."""
    installation = find_installation(root)
    if installation is None:
        raise BrokerProcessError(HOW_TO_GET_RABBITMQ)
    return installation


def _refuse_empty_root(root: Path | None) -> None:
    if root is not None:
        raise BrokerProcessError(f"No rabbitmq-server in {root}: check {ROOT_VARIABLE}.")


def _path_from(environment: Mapping[str, str], variable: str) -> Path | None:
    value = environment.get(variable)
    if not value:
        return None
    if not Path(value).exists():
        raise BrokerProcessError(
            f"{variable} is {value}, which does not exist: correct or unset it."
        )
    return Path(value).absolute()


def _find_server(base: Path, environment: Mapping[str, str]) -> Path | None:
    known = _first(_matches(base, _SERVER_PATTERNS))
    return known or _on_path("rabbitmq-server", base, environment)


def _on_path(program: str, base: Path, environment: Mapping[str, str]) -> Path | None:
    found = shutil.which(program, path=environment.get("PATH")) if base == Path("/") else None
    if found is None:
        return None
    resolved = Path(found).resolve()
    return resolved.with_name(program) if resolved.name == _WRAPPER_NAME else resolved


def _matches(base: Path, patterns: Sequence[str]) -> Iterator[Path]:
    for pattern in patterns:
        for match in sorted(base.glob(pattern), reverse=True):
            yield Path("/") / match.relative_to(base)


def _first(paths: Iterator[Path]) -> Path | None:
    return next(paths, None)
