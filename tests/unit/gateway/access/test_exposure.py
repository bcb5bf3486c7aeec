"""A gateway without tokens listens only where no other machine can connect."""

import pytest

from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.gateway import GatewayApp, GatewaySettings
from rabbitdelay.gateway.access.exposure import require_protection
from rabbitdelay.gateway.access.tokens import TokenTable
from rabbitdelay.gateway.server import GatewayServer, ServerSettings

LOOPBACK = ["127.0.0.1", "127.0.0.53", "::1"]
EXPOSED = ["0.0.0.0", "::", "192.168.1.7", "fe80::1%eth0", "2001:db8::1", "::ffff:10.0.0.1"]  # noqa: S104


@pytest.mark.parametrize("address", LOOPBACK)
def test_loopback_needs_no_tokens(address: str) -> None:
    require_protection(address, has_tokens=False, insecure=False)


@pytest.mark.parametrize("address", EXPOSED)
def test_other_addresses_need_tokens(address: str) -> None:
    with pytest.raises(InvalidConfiguration, match="--insecure") as refused:
        require_protection(address, has_tokens=False, insecure=False)
    assert address in str(refused.value)


@pytest.mark.parametrize("address", EXPOSED)
def test_tokens_or_consent_protect(address: str) -> None:
    require_protection(address, has_tokens=True, insecure=False)
    require_protection(address, has_tokens=False, insecure=True)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104
def test_a_server_without_tokens_does_not_listen_there(host: str) -> None:
    with pytest.raises(InvalidConfiguration, match="without tokens"):
        GatewayServer(GatewayApp("amqp://localhost"), ServerSettings(host=host, port=0))


def test_tokens_without_tls_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    table = TokenTable([])
    app = GatewayApp("amqp://localhost", settings=GatewaySettings(tokens=lambda: table))
    server = GatewayServer(app, ServerSettings(host="0.0.0.0", port=0))  # noqa: S104
    server._socket.close()
    assert "sent unencrypted" in caplog.text
