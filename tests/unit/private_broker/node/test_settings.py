"""Parsing of a private node's settings in rabbitmqctl's output."""

import pytest

from rabbitdelay.private_broker.node.settings import parse_settings


@pytest.mark.parametrize(
    ("printed", "settings"),
    [
        ("[{consumer_timeout,1800000},{max_message_size,42}]\n", (1_800_000, 42)),
        ("[{consumer_timeout,\n     1800000},\n {max_message_size,42}]\n", (1_800_000, 42)),
        ("[{consumer_timeout,undefined},{max_message_size,42}]", (None, 42)),
        ("[]", (None, None)),
    ],
)
def test_an_undefined_setting_is_disabled(
    printed: str, settings: tuple[int | None, int | None]
) -> None:
    found = parse_settings(printed)
    assert (found.get("consumer_timeout"), found.get("max_message_size")) == settings
