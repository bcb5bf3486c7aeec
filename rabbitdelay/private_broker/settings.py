"""Settings of a private node that only the node itself can tell: they are asked of rabbitmqctl."""

import re
from collections.abc import Iterable

from rabbitdelay.private_broker.configuration import DEAD_LETTER_RETRY
from rabbitdelay.private_broker.node import Node

CONSUMER_TIMEOUT = "consumer_timeout"
MAX_MESSAGE_SIZE = "max_message_size"
_NUMBER = re.compile(r"\{(\w+),\s*(\d+)\}")


def read_settings(
    node: Node, names: Iterable[str] = (DEAD_LETTER_RETRY, CONSUMER_TIMEOUT, MAX_MESSAGE_SIZE)
) -> dict[str, int]:
    """Return the running node's values of these settings; one that is off is left out.

    Raises:
        BrokerProcessError: The node does not run, or rabbitmqctl failed.
    """
    pairs = (
        f"[{{Name, application:get_env(rabbit, Name, undefined)}} || Name <- [{','.join(names)}]]."
    )
    return parse_settings(node.control("eval", pairs))


def parse_settings(printed: str) -> dict[str, int]:
    """Read the pairs that rabbitmqctl prints; what is not a number is off."""
    return {name: int(value) for name, value in _NUMBER.findall(printed)}
