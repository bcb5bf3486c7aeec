"""Find the broker: `--url` or an argument, RABBITDELAY_URL, the running private node, localhost."""

import os
from collections.abc import Mapping

from rabbitdelay import address
from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.private_broker import (
    DIRECTORY_VARIABLE,
    PrivateBroker,
    default_directory,
    find_running,
)

DEFAULT_URL = "amqp://localhost"


def locate_url(url: str | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the broker's URL, or the comma-separated URLs of a cluster."""
    if given := url or environment.get("RABBITDELAY_URL"):
        return given
    private = find_running()
    if private is not None:
        return private.url
    _refuse_if_meant(PrivateBroker(default_directory()), environment)
    return DEFAULT_URL


def locate(url: str | None = None) -> tuple[address.Address, ...]:
    """Return the broker's addresses."""
    return address.parse_all(locate_url(url))


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
