"""Settings of a private node, read from the running node with rabbitmqctl."""

import re
from collections.abc import Iterable

from rabbitdelay.private_broker.installation.configuration import DEAD_LETTER_RETRY
from rabbitdelay.private_broker.node.node import Node

CONSUMER_TIMEOUT = "consumer_timeout"
MAX_MESSAGE_SIZE = "max_message_size"
_NUMBER = re.compile(r"\{(\w+),\s*(\d+)\}")


def read_settings(
    node: Node, names: Iterable[str] = (DEAD_LETTER_RETRY, CONSUMER_TIMEOUT, MAX_MESSAGE_SIZE)
) -> dict[str, int]:
    """Return the running node's values of these settings, without those that are disabled.

    Raises:
        BrokerProcessError: The node is not running, or rabbitmqctl failed.
    """
    pairs = (
        f"[{{Name, application:get_env(rabbit, Name, undefined)}} || Name <- [{','.join(names)}]]."
    )
    return parse_settings(node.control("eval", pairs))


def parse_settings(printed: str) -> dict[str, int]:
    """Parse the pairs that rabbitmqctl prints; a value that is not a number means disabled."""
    return {name: int(value) for name, value in _NUMBER.findall(printed)}
