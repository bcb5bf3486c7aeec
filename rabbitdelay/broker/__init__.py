"""A private RabbitMQ on this machine, for trying, testing and breaking things."""

from rabbitdelay.broker.node import Node
from rabbitdelay.broker.private import BrokerStatus, NodeStatus, PrivateBroker, find_running
from rabbitdelay.broker.state import DIRECTORY_VARIABLE, default_directory, export_line

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
