"""The configuration files and the environment of one node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rabbitdelay.private_broker.ports import LOOPBACK
from rabbitdelay.private_broker.state import Layout, NodeLayout

# What a user may have set and the node may know. RABBITMQ_* and ERL_* must not get through: they
# are meant for another node.
_INHERITED_VARIABLES = ("TMPDIR", "TZ", "LD_LIBRARY_PATH")

DEAD_LETTER_RETRY = "dead_letter_worker_publisher_confirm_timeout"
DEAD_LETTER_RETRY_MS = 5_000
"""How long the broker's dead-letter worker waits before it publishes a rejected message again.

While a node starts, hold queues dead-letter into queues that have not started yet. The default of
180 s would hold those jobs back for three minutes (docs/measurements.md).
"""


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """Where one node keeps what."""

    directory: Path

    @property
    def configuration(self) -> Path:
        """The main configuration."""
        return self.directory / "rabbitmq.conf"

    @property
    def advanced_configuration(self) -> Path:
        """Its own one, so that the one of the machine's own RabbitMQ is not read."""
        return self.directory / "advanced.config"

    @property
    def additional_configuration(self) -> Path:
        """An empty folder, for the same reason."""
        return self.directory / "conf.d"

    @property
    def enabled_plugins(self) -> Path:
        """The list of plugins."""
        return self.directory / "enabled_plugins"

    @property
    def cookie(self) -> Path:
        """The key that lets nodes of one cluster talk to each other."""
        return self.directory / ".erlang.cookie"

    @property
    def data(self) -> Path:
        """What the node stores."""
        return self.directory / "data"

    @property
    def logs(self) -> Path:
        """What the node logs."""
        return self.directory / "log"

    @property
    def console(self) -> Path:
        """What the node has printed since its last start."""
        return self.logs / "console.log"

    @property
    def view(self) -> Path:
        """The view of the installation that this node runs."""
        return self.directory / "rabbitmq"

    @property
    def scratch(self) -> Path:
        """An empty folder for the mounts of a node that runs in a root of its own."""
        return self.directory / "scratch"


def write_files(files: NodeFiles, node: NodeLayout, broker: Layout) -> None:
    """Write all that the node reads at its start."""
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
    """The text of rabbitmq.conf. The caller's extra lines have the last word."""
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
    """Return the text of advanced.config, for the setting that rabbitmq.conf has no name for."""
    setting = f"{{{DEAD_LETTER_RETRY}, {DEAD_LETTER_RETRY_MS}}}"
    return f"[{{rabbit, [{setting}]}}].\n"


def dead_letter_retry_arguments() -> str:
    """Return the same setting as arguments of the Erlang VM, for a node without our files."""
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
    """The whole environment of the node's process, but for its PATH."""
    return {
        **{name: inherited[name] for name in _INHERITED_VARIABLES if name in inherited},
        "LANG": "C.UTF-8",
        "HOME": str(files.directory),
        # Makes the start script become the Erlang VM, where it would else wait for it as a shell:
        # the pid is the node's own. What systemd itself looks at is NOTIFY_SOCKET, not passed on.
        "RUNNING_UNDER_SYSTEMD": "true",
        "ERL_EPMD_ADDRESS": LOOPBACK,
        "ERL_EPMD_PORT": str(broker.epmd_port),
        "ERL_CRASH_DUMP_SECONDS": "0",  # none: it takes seconds, and megabytes
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
    """What makes the start script take RabbitMQ from this folder."""
    return {
        "RABBITMQ_SCRIPTS_DIR": str(view / "sbin"),
        "RABBITMQ_PLUGINS_DIR": str(view / "plugins"),
    }
