"""From what a caller wishes to the layout of a broker's folder."""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rabbitdelay.errors import BrokerProcessError, InvalidConfiguration
from rabbitdelay.private_broker import docker
from rabbitdelay.private_broker.installation import (
    HOW_TO_GET_RABBITMQ,
    ROOT_VARIABLE,
    find_installation,
)
from rabbitdelay.private_broker.ports import pick_free
from rabbitdelay.private_broker.state import Layout, NodeLayout

NO_ENGINE = "No Docker engine answers: start Docker, or leave out --docker."
_PORTS_PER_NODE = 3


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a caller asks of a broker; None is no wish."""

    nodes: int | None = None
    port: int | None = None
    root: Path | None = None
    extra_config: Mapping[str, str] | None = None
    docker: bool = False


def new_layout(directory: Path, wishes: Wishes) -> Layout:
    """The layout of a broker that is started for the first time."""
    installation = None if wishes.docker else find_installation(wishes.root)
    count = wishes.nodes or 1
    epmd_port, *ports = pick_free(1 + _PORTS_PER_NODE * count, avoid=[wishes.port or 0])
    return Layout(
        nodes=_node_layouts(count, ports, wishes.port),
        epmd_port=epmd_port,
        cookie=secrets.token_hex(16).upper(),
        root=str(installation.root) if installation and installation.root else None,
        container=None if installation else _container_name(directory, wishes),
        extra_config=dict(wishes.extra_config or {}),
    )


def kept_layout(directory: Path, layout: Layout, wishes: Wishes) -> Layout:
    """The layout of a broker that was started before; a wish that it cannot fulfil is refused."""
    root = wishes.root or os.environ.get(ROOT_VARIABLE) or layout.root
    _refuse_change(directory, "nodes", len(layout.nodes), wishes.nodes)
    _refuse_change(directory, "port", layout.nodes[0].amqp_port, wishes.port)
    _refuse_change(directory, "root", layout.root, root and str(Path(root).absolute()))
    if wishes.docker and layout.container is None:
        raise InvalidConfiguration(
            f"The broker in {directory} was made without Docker: leave out --docker, or choose "
            "another folder."
        )
    if wishes.extra_config is None:
        return layout
    return replace(layout, extra_config=dict(wishes.extra_config))


def _refuse_change(
    directory: Path, what: str, kept: int | str | None, wished: int | str | None
) -> None:
    if wished is not None and wished != kept:
        raise InvalidConfiguration(
            f"The broker in {directory} was made with {what} {kept or 'of the machine'}, not "
            f"{wished}: leave that out, or choose another folder."
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


def _container_name(directory: Path, wishes: Wishes) -> str:
    if not docker.engine_answers():
        raise BrokerProcessError(NO_ENGINE if wishes.docker else HOW_TO_GET_RABBITMQ)
    if (wishes.nodes or 1) > 1:
        raise BrokerProcessError(
            "A cluster needs rabbitmq-server on this machine (`apt-get install rabbitmq-server`): "
            "in Docker there is one node only."
        )
    return f"rabbitdelay-{directory.name.strip('.')}-{secrets.token_hex(3)}"
