"""TLS of the gateway's own port: its certificate, which is read again on request."""

import logging
import ssl
from pathlib import Path

from rabbitdelay.errors import InvalidConfiguration

logger = logging.getLogger("rabbitdelay.gateway")


class Certificate:
    """A certificate and its key, and the TLS settings of a server that has them."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Read the files; raise InvalidConfiguration if they cannot be used."""
        self._cert = cert
        self._key = key
        self.context = self._load(_new_context())

    def reload(self) -> bool:
        """Read the files again, for connections from now on. If they are wrong, keep the old."""
        try:
            self._load(_new_context())  # a pair that does not match must not reach the real one
            self._load(self.context)
        except InvalidConfiguration as error:
            logger.error("tls: certificate not reloaded, the previous one stays (%s)", error)  # noqa: TRY400
            return False
        logger.info("tls: certificate reloaded")
        return True

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        try:
            context.load_cert_chain(self._cert, self._key, password=_refuse_password)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InvalidConfiguration(
                f"cannot use the TLS certificate {self._cert} with the key {self._key}: {reason}"
            ) from None
        return context


def _new_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _refuse_password() -> str:
    """Refuse a key with a password, which OpenSSL would otherwise ask the terminal for."""
    raise ValueError("the key has a password: a server cannot ask for it")
