"""The topology in RabbitMQ's definitions format, for brokers on which clients may not declare."""

from collections.abc import Iterable
from typing import Any

from rabbitdelay.core.topology.objects import Declaration, Exchange, Queue

Definitions = dict[str, list[dict[str, Any]]]


def definitions(declarations: Iterable[Declaration], *, vhost: str) -> Definitions:
    """Return definitions for `rabbitmqctl import_definitions` and the management UI."""
    result: Definitions = {"exchanges": [], "queues": [], "bindings": []}
    for declaration in declarations:
        section, entry = _entry(declaration)
        result[section].append({"vhost": vhost, **entry})
    return result


def _entry(declaration: Declaration) -> tuple[str, dict[str, Any]]:
    lasting = {"durable": True, "auto_delete": False}
    match declaration:
        case Exchange(name, type_, arguments):
            kind = {"name": name, "type": type_, "internal": False}
            return "exchanges", {**kind, **lasting, "arguments": arguments}
        case Queue(name, arguments):
            return "queues", {"name": name, **lasting, "arguments": arguments}
    return "bindings", {
        "source": declaration.source,
        "destination": declaration.destination,
        "destination_type": declaration.destination_type,
        "routing_key": declaration.key,
        "arguments": {},
    }
