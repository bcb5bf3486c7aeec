"""Client settings: validated and derived once, and the same in every signature."""

import dataclasses
import inspect
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

import rabbitdelay
from rabbitdelay import InvalidConfiguration, RetryPolicy, aio
from rabbitdelay.engine.client_settings import ClientSettings

FIELDS = {one.name: one for one in dataclasses.fields(ClientSettings) if one.init}
SIGNATURES = [rabbitdelay.Client, rabbitdelay.Worker, aio.Client, aio.Worker]


def test_settings_derive_what_the_client_uses() -> None:
    settings = ClientSettings(namespace="ns", max_delay=60, max_body_bytes=5, allow_reply_to=["a"])
    assert settings.topology.ready_queue("t").startswith("ns.")
    assert settings.topology.max_delay_ms == settings.bounds.max_delay_ms == 60_000
    assert settings.bounds.max_body_bytes == 5
    assert settings.reply_queues.allows("a")


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        ClientSettings().timeout = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("namespace", "a.b", "namespace"),
        ("queue_type", "stream", "queue type"),
        ("timeout", -1, "timeout"),
        ("connect_timeout", "soon", "connect_timeout"),
        ("stabilise_seconds", -1, "stabilise_seconds"),
        ("window", 0, "window"),
        ("max_body_bytes", 0, "max_body_bytes"),
        ("max_delay", -1, "max_delay"),
        ("allow_reply_to", "one", "allow_reply_to"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(name: str, value: object, text: str) -> None:
    arguments: dict[str, Any] = {name: value}
    with pytest.raises(InvalidConfiguration, match=text):
        ClientSettings(**arguments)


@pytest.mark.parametrize("kind", SIGNATURES)
def test_signatures_have_the_defaults_of_the_settings(kind: type) -> None:
    """Both front ends repeat the defaults in their signatures, where they must not differ."""
    parameters = inspect.signature(kind).parameters
    for name in FIELDS.keys() & parameters.keys() - {"retry"}:
        assert parameters[name].default == FIELDS[name].default, name


@pytest.mark.parametrize("kind", [rabbitdelay.Client, aio.Client])
def test_a_client_takes_every_setting(kind: type) -> None:
    assert set(inspect.signature(kind).parameters) - {"connection"} == FIELDS.keys()
    assert ClientSettings().retry == RetryPolicy()
