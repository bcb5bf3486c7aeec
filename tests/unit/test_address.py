"""Broker addresses: parsing, error texts, and the password that must not be shown."""

import pytest

from rabbitdelay import Client, address, discovery
from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.private_broker import lookup

SECRET = "s3cr3t-p@ss"  # noqa: S105 - made up
URL = "amqps://bob:s3cr3t-p%40ss@mq.example:5999/shop%2Fone?heartbeat=7&server_name=mq"


def test_a_url_is_parsed() -> None:
    found = address.parse(URL)
    assert (found.scheme, found.host, found.port) == ("amqps", "mq.example", 5999)
    assert (found.user, found.password, found.vhost) == ("bob", SECRET, "shop/one")
    assert (found.heartbeat_seconds, found.server_name) == (7, "mq")


@pytest.mark.parametrize("url", ["amqp://localhost", "amqp://localhost/", "amqp://localhost/%2F"])
def test_the_default_vhost_has_many_spellings(url: str) -> None:
    assert address.parse(url).vhost == "/"


def test_the_password_is_never_shown() -> None:
    found = address.parse(URL)
    client = Client(URL)
    assert SECRET not in f"{found} {found!r} {client!r}"
    assert str(found) == "amqps://bob:***@mq.example:5999/shop/one"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "empty"),
        ("http://bob:s3cr3t@x", "must begin with amqp:// or amqps://, not http://"),
        ("localhost:5672", "must begin with"),
        ("amqp://bob:s3cr3t/x@h:1/", "percent-encoded"),
        ("amqp://bob:s3cr3t#x@h:1/", "percent-encoded"),
        ("amqp://bob:s3cr3t?x@h:1/", "percent-encoded"),
        ("amqp://bob:s3cr3t,x@h:1/", "percent-encoded"),
        ("amqp://bob:pass?s3cr3t=x@h:1/", "percent-encoded"),
        ("amqp://bob:1,s3cr3t:y@h", "percent-encoded"),
        ("amqp://bob:12/s3cr3t@h", "percent-encoded"),
        ("amqp://bob:12#s3cr3t@h", "percent-encoded"),
        ("amqp://bob:s3cr3t@x:port", "cannot be parsed"),
        ("amqp://bob:s3cr3t@x?verify=none", "unknown options"),
        ("amqp://bob:s3cr3t@x?heartbeat=soon", "heartbeat in the broker URL must be a number"),
    ],
)
def test_an_invalid_url_is_explained(url: str, says: str) -> None:
    with pytest.raises(InvalidConfiguration, match=says) as caught:
        address.parse_all(url)
    assert "s3cr3t" not in str(caught.value)


def test_several_urls_are_separated_by_commas() -> None:
    assert [a.port for a in address.parse_all("amqp://a:1, amqp://b:2")] == [1, 2]


def test_locate_url_order_of_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument, then the environment, then the private node, then localhost."""
    monkeypatch.delenv("RABBITDELAY_BROKER_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/nonexistent")
    monkeypatch.setattr(lookup, "find_running", lambda: None)
    assert discovery.locate_url(None, {}) == "amqp://localhost"
    with pytest.raises(InvalidConfiguration, match="is /b, but no broker is running there"):
        discovery.locate_url(None, {"RABBITDELAY_BROKER_DIR": "/b"})
    monkeypatch.setattr(lookup, "find_running", lambda: type("Node", (), {"url": "amqp://private"}))
    assert discovery.locate_url(None, {}) == "amqp://private"
    assert (
        discovery.locate_url(None, {"RABBITDELAY_URL": "amqp://environment"})
        == "amqp://environment"
    )
    assert discovery.locate_url("amqp://argument", {"RABBITDELAY_URL": "x"}) == "amqp://argument"
