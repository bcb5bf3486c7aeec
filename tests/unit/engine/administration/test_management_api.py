"""The address of the management API, and that its password is never shown."""

import pytest

from rabbitdelay import address
from rabbitdelay.engine.administration import management_api
from rabbitdelay.errors import InvalidConfiguration


@pytest.fixture(autouse=True)
def _no_private_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RABBITDELAY_BROKER_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/nonexistent")


@pytest.mark.parametrize(
    ("amqp", "expected"),
    [
        ("amqp://localhost", "http://localhost:15672/"),
        ("amqp://broker.example:5673/shop", "http://broker.example:15672/"),
        ("amqps://broker.example", "https://broker.example:15671/"),
        ("amqp://[::1]", "http://[::1]:15672/"),
        ("amqp://one,amqp://two", "http://one:15672/"),
    ],
)
def test_the_default_is_the_usual_port_on_the_host_of_the_broker(amqp: str, expected: str) -> None:
    assert management_api.locate(None, address.parse_all(amqp)).url == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://example.org:1234", "http://example.org:1234/"),
        ("https://example.org/rabbit/api/", "https://example.org/rabbit/"),
        ("http://me:s3cret@example.org", "http://example.org/"),
    ],
)
def test_a_given_url_is_used(given: str, expected: str) -> None:
    assert management_api.locate(given, address.parse_all("amqp://localhost")).url == expected


def test_user_and_password_default_to_those_of_the_broker() -> None:
    addresses = address.parse_all("amqp://ann:one%2Ftwo@localhost")
    same = management_api.locate("http://localhost", addresses)
    own = management_api.locate("http://bob:three%40@localhost", addresses)
    assert (same.user, same.password) == ("ann", "one/two")
    assert (own.user, own.password) == ("bob", "three@")
    assert "three" not in repr(own)


def test_another_scheme_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="http:// or https://"):
        management_api.locate("amqp://localhost:15672", address.parse_all("amqp://localhost"))
