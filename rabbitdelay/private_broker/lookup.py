"""Look up the private broker of this machine, for programs without a URL."""

from collections.abc import Container, Mapping
from functools import partial

from rabbitdelay.core.doctor.facts import BrokerSettings
from rabbitdelay.engine.administration.local_node import LocalNode
from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.private_broker.installation import configuration
from rabbitdelay.private_broker.node import settings
from rabbitdelay.private_broker.node.node import Node
from rabbitdelay.private_broker.private_broker import PrivateBroker, find_running
from rabbitdelay.private_broker.state import DIRECTORY_VARIABLE, default_directory


def running_url(environment: Mapping[str, str]) -> str | None:
    """Return the URL of the private broker; None if it was never started or was stopped."""
    private = find_running()
    if private is not None:
        return private.url
    _refuse_if_meant(PrivateBroker(default_directory()), environment)
    return None


def running_node(ports: Container[int]) -> LocalNode | None:
    """Return the private node that serves AMQP on one of these ports, if it runs."""
    private = find_running()
    if private is None:
        return None
    nodes = (node for node in private.nodes if node.layout.amqp_port in ports)
    node = next(nodes, None)
    if node is None:
        return None
    return LocalNode(private.management_url, partial(_read_settings, node))


def _read_settings(node: Node) -> BrokerSettings:
    values = settings.read_settings(node)
    return BrokerSettings(
        values.get(configuration.DEAD_LETTER_RETRY),
        values.get(settings.CONSUMER_TIMEOUT),
        values.get(settings.MAX_MESSAGE_SIZE),
    )


def _refuse_if_meant(private: PrivateBroker, environment: Mapping[str, str]) -> None:
    """Raise an error rather than use localhost when a chosen private broker is down."""
    if private.was_started:
        is_starting = any(node.pid is not None for node in private.nodes)
        raise InvalidConfiguration(
            f"the private broker in {private.directory} was started and is "
            f"{'not ready yet' if is_starting else 'not running'}: start it again with "
            "`rabbitdelay broker start`, forget it with `rabbitdelay broker stop`, or set --url "
            "or RABBITDELAY_URL"
        )
    if named := environment.get(DIRECTORY_VARIABLE):
        raise InvalidConfiguration(
            f"{DIRECTORY_VARIABLE} is {named}, but no broker is running there: start one with "
            "`rabbitdelay broker start`, or set --url or RABBITDELAY_URL"
        )
