"""Which broker: --url or an argument, RABBITDELAY_URL, the started private node, localhost."""

import os
from collections.abc import Mapping

from rabbitdelay import address
from rabbitdelay.broker import find_running

DEFAULT_URL = "amqp://localhost"


def locate_url(url: str | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the broker's URL, or several with commas between them."""
    if given := url or environment.get("RABBITDELAY_URL"):
        return given
    private = find_running()
    return private.url if private is not None else DEFAULT_URL


def locate(url: str | None = None) -> tuple[address.Address, ...]:
    """Return the broker's addresses."""
    return address.parse_all(locate_url(url))
