"""Derive the layout of a broker's folder from the options that the caller gave."""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rabbitdelay.errors import BrokerProcessError, InvalidConfiguration
from rabbitdelay.private_broker.installation.installation import (
    HOW_TO_GET_RABBITMQ,
    ROOT_VARIABLE,
    find_installation,
)
from rabbitdelay.private_broker.machine.ports import pick_free
from rabbitdelay.private_broker.node import docker
from rabbitdelay.private_broker.state import Layout, NodeLayout

NO_ENGINE = "No Docker engine is running: start Docker, or omit --docker."
_PORTS_PER_NODE = 3


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Options of a broker; None means that the caller did not set one."""

    nodes: int | None = None
    port: int | None = None
    root: Path | None = None
    extra_config: Mapping[str, str] | None = None
    docker: bool = False


def new_layout(directory: Path, options: BrokerOptions) -> Layout:
    """Return the layout of a broker that is started for the first time."""
    installation = None if options.docker else find_installation(options.root)
    count = options.nodes or 1
    epmd_port, *ports = pick_free(1 + _PORTS_PER_NODE * count, avoid=[options.port or 0])
    return Layout(
        nodes=_node_layouts(count, ports, options.port),
        epmd_port=epmd_port,
        cookie=secrets.token_hex(16).upper(),
        root=str(installation.root) if installation and installation.root else None,
        container=None if installation else _container_name(directory, options),
        extra_config=dict(options.extra_config or {}),
    )


def existing_layout(directory: Path, layout: Layout, options: BrokerOptions) -> Layout:
    """Return the layout of a broker that was started before.

    Raises:
        InvalidConfiguration: An option contradicts the existing layout.
    """
    root = options.root or os.environ.get(ROOT_VARIABLE) or layout.root
    _refuse_change(directory, "nodes", len(layout.nodes), options.nodes)
    _refuse_change(directory, "port", layout.nodes[0].amqp_port, options.port)
    _refuse_change(directory, "root", layout.root, root and str(Path(root).absolute()))
    if options.docker and layout.container is None:
        raise InvalidConfiguration(
            f"The broker in {directory} was created without Docker: omit --docker, or choose "
            "another folder."
        )
    if options.extra_config is None:
        return layout
    return replace(layout, extra_config=dict(options.extra_config))


def _refuse_change(
    directory: Path, option: str, existing: int | str | None, requested: int | str | None
) -> None:
    if requested is not None and requested != existing:
        raise InvalidConfiguration(
            f"The broker in {directory} was created with {option}={existing or 'none'}, not "
            f"{requested}: omit that option, or choose another folder."
        )


def _node_layouts(count: int, ports: list[int], first_port: int | None) -> tuple[NodeLayout, ...]:
    triples = zip(*[iter(ports)] * _PORTS_PER_NODE, strict=True)
    nodes = [
        NodeLayout(f"rabbitdelay{number}@localhost", *triple)
        for number, triple in zip(range(1, count + 1), triples, strict=True)
    ]
    if first_port is not None:
        nodes[0] = replace(nodes[0], amqp_port=first_port)
    return tuple(nodes)


def _container_name(directory: Path, options: BrokerOptions) -> str:
    if not docker.engine_answers():
        raise BrokerProcessError(NO_ENGINE if options.docker else HOW_TO_GET_RABBITMQ)
    if (options.nodes or 1) > 1:
        raise BrokerProcessError(
            "A broker in Docker has only one node: for a cluster, install rabbitmq-server on this "
            "machine (`apt-get install rabbitmq-server`)."
        )
    return f"rabbitdelay-{directory.name.strip('.')}-{secrets.token_hex(3)}"
