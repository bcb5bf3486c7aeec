"""A private RabbitMQ on this machine, for experiments, tests and fault injection."""

from rabbitdelay.private_broker.node.node import Node
from rabbitdelay.private_broker.private_broker import (
    BrokerStatus,
    NodeStatus,
    PrivateBroker,
    find_running,
)
from rabbitdelay.private_broker.state import DIRECTORY_VARIABLE, default_directory, export_line

__all__ = [
    "DIRECTORY_VARIABLE",
    "BrokerStatus",
    "Node",
    "NodeStatus",
    "PrivateBroker",
    "default_directory",
    "export_line",
    "find_running",
]
