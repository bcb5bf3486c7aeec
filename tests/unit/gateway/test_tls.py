"""TLS of the gateway's port."""

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme

from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.gateway.tls import Certificate
from tests.support.patience import patience

AUTHORITY = trustme.CA()


class Files:
    """A certificate and its key in files."""

    def __init__(self, directory: Path) -> None:
        self.cert = directory / "cert.pem"
        self.key = directory / "key.pem"

    def write(self, name: str) -> None:
        issued = AUTHORITY.issue_cert(name)
        self.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(self.key)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    found = Files(tmp_path)
    found.write("localhost")
    return found


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


def connect(certificate: Certificate, name: str, context: ssl.SSLContext) -> str | None:
    """Return the version of TLS with which a client connects that expects a name."""

    async def connect() -> str | None:
        async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=certificate.context)
        port = server.sockets[0].getsockname()[1]
        try:
            async with asyncio.timeout(patience(10)):
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=context, server_hostname=name
                )
            found: ssl.SSLObject = writer.get_extra_info("ssl_object")
            writer.close()
            return found.version()
        finally:
            server.close()

    return asyncio.run(connect())


def test_a_client_connects_with_a_current_version(files: Files) -> None:
    assert connect(Certificate(files.cert, files.key), "localhost", trusting()) == "TLSv1.3"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_old_versions_are_refused(files: Files) -> None:
    context = trusting()
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # OpenSSL itself would refuse to offer it
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connect(Certificate(files.cert, files.key), "localhost", context)


def test_a_reload_serves_the_new_certificate(files: Files) -> None:
    certificate = Certificate(files.cert, files.key)
    files.write("gateway.example")
    assert certificate.reload()
    assert connect(certificate, "gateway.example", trusting()) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(certificate, "localhost", trusting())


@pytest.mark.parametrize("wrong", ["cert", "key", "gone"])
def test_a_reload_of_wrong_files_keeps_the_certificate(
    files: Files, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = Certificate(files.cert, files.key)
    if wrong == "cert":
        files.cert.write_text("nonsense")
    elif wrong == "key":
        AUTHORITY.issue_cert("other.example").private_key_pem.write_to_path(files.key)
    else:
        files.key.unlink()
    assert not certificate.reload()
    assert "not reloaded" in caplog.text
    assert connect(certificate, "localhost", trusting()) == "TLSv1.3"


def test_files_that_do_not_match_are_refused(files: Files) -> None:
    AUTHORITY.issue_cert("other.example").private_key_pem.write_to_path(files.key)
    with pytest.raises(InvalidConfiguration, match="with the key") as refused:
        Certificate(files.cert, files.key)
    assert "PRIVATE" not in str(refused.value)


def test_old_versions_are_not_left_to_the_settings_of_openssl(files: Files) -> None:
    context = Certificate(files.cert, files.key).context
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
