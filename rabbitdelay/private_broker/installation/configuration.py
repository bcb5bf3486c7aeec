"""Configuration files and environment variables of one node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rabbitdelay.private_broker.machine.ports import LOOPBACK
from rabbitdelay.private_broker.state import Layout, NodeLayout

# Variables that a node inherits. RABBITMQ_* and ERL_* are dropped because they are meant for
# another node.
_INHERITED_VARIABLES = ("TMPDIR", "TZ", "LD_LIBRARY_PATH")

DEAD_LETTER_RETRY = "dead_letter_worker_publisher_confirm_timeout"
DEAD_LETTER_RETRY_MS = 5_000
"""Delay before the broker's dead-letter worker republishes a rejected message, in milliseconds.

While a node starts, hold queues dead-letter into queues that have not started yet. The default of
180 s would delay those jobs by three minutes (docs/measurements.md).
"""


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """Paths of one node's files."""

    directory: Path

    @property
    def configuration(self) -> Path:
        """Main configuration file."""
        return self.directory / "rabbitmq.conf"

    @property
    def advanced_configuration(self) -> Path:
        """Advanced configuration file, so that the system RabbitMQ's file is not read."""
        return self.directory / "advanced.config"

    @property
    def additional_configuration(self) -> Path:
        """Empty folder, so that the system RabbitMQ's `conf.d` is not read."""
        return self.directory / "conf.d"

    @property
    def enabled_plugins(self) -> Path:
        """List of enabled plugins."""
        return self.directory / "enabled_plugins"

    @property
    def cookie(self) -> Path:
        """Erlang cookie: the secret that nodes of one cluster share."""
        return self.directory / ".erlang.cookie"

    @property
    def data(self) -> Path:
        """Folder of the node's data."""
        return self.directory / "data"

    @property
    def logs(self) -> Path:
        """Folder of the node's logs."""
        return self.directory / "log"

    @property
    def console(self) -> Path:
        """Console output since the node's last start."""
        return self.logs / "console.log"

    @property
    def view(self) -> Path:
        """Folder with the view of the installation that this node runs."""
        return self.directory / "rabbitmq"

    @property
    def scratch(self) -> Path:
        """Empty folder for the mounts of a node that runs in a chroot."""
        return self.directory / "scratch"


def write_files(files: NodeFiles, node: NodeLayout, broker: Layout) -> None:
    """Write every file that the node reads when it starts."""
    for folder in (files.data, files.logs, files.additional_configuration):
        folder.mkdir(parents=True, exist_ok=True)
    files.configuration.write_text(configuration_text(node, broker))
    files.advanced_configuration.write_text(advanced_configuration_text())
    files.enabled_plugins.write_text("[rabbitmq_management].\n")
    if not files.cookie.exists():
        files.cookie.touch(mode=0o600)
        files.cookie.write_text(broker.cookie)
        files.cookie.chmod(0o400)


def configuration_text(node: NodeLayout, broker: Layout) -> str:
    """Return the text of rabbitmq.conf; the caller's `extra_config` overrides our settings."""
    settings = {
        "listeners.tcp.default": f"{LOOPBACK}:{node.amqp_port}",
        "management.tcp.ip": LOOPBACK,
        "management.tcp.port": str(node.management_port),
        "disk_free_limit.absolute": "50MB",  # a small disk must not raise an alarm
        **_cluster_settings(broker.nodes),
        **broker.extra_config,
    }
    return "".join(f"{name} = {value}\n" for name, value in settings.items())


def advanced_configuration_text() -> str:
    """Return the text of advanced.config, for the setting that rabbitmq.conf cannot express."""
    setting = f"{{{DEAD_LETTER_RETRY}, {DEAD_LETTER_RETRY_MS}}}"
    return f"[{{rabbit, [{setting}]}}].\n"


def dead_letter_retry_arguments() -> str:
    """Return the dead-letter retry setting as Erlang VM arguments, for nodes without our files."""
    return f"-rabbit {DEAD_LETTER_RETRY} {DEAD_LETTER_RETRY_MS}"


def _cluster_settings(nodes: Sequence[NodeLayout]) -> dict[str, str]:
    if len(nodes) == 1:
        return {}
    prefix = "cluster_formation.classic_config.nodes"
    peers = {f"{prefix}.{number}": node.name for number, node in enumerate(nodes, start=1)}
    return {"cluster_formation.peer_discovery_backend": "classic_config", **peers}


def environment_variables(
    files: NodeFiles, node: NodeLayout, broker: Layout, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Return the complete environment of the node's process, except its PATH."""
    return {
        **{name: inherited[name] for name in _INHERITED_VARIABLES if name in inherited},
        "LANG": "C.UTF-8",
        "HOME": str(files.directory),
        # Makes the start script exec the Erlang VM instead of waiting for it as a shell, so the
        # pid is the node's own. systemd notification needs NOTIFY_SOCKET, which is not inherited.
        "RUNNING_UNDER_SYSTEMD": "true",
        "ERL_EPMD_ADDRESS": LOOPBACK,
        "ERL_EPMD_PORT": str(broker.epmd_port),
        "ERL_CRASH_DUMP_SECONDS": "0",  # no crash dump: it takes seconds and megabytes
        "RABBITMQ_NODENAME": node.name,
        "RABBITMQ_DIST_PORT": str(node.distribution_port),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": str(files.configuration.with_suffix("")),
        "RABBITMQ_CONFIG_FILES": str(files.additional_configuration),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(files.advanced_configuration),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(files.enabled_plugins),
        "RABBITMQ_MNESIA_BASE": str(files.data),
        "RABBITMQ_LOG_BASE": str(files.logs),
    }


def view_variables(view: Path) -> dict[str, str]:
    """Return the variables that make the start script run RabbitMQ from this folder."""
    return {
        "RABBITMQ_SCRIPTS_DIR": str(view / "sbin"),
        "RABBITMQ_PLUGINS_DIR": str(view / "plugins"),
    }
