"""The server's own certificate and whose clients it trusts, as files that may be renewed; knows no transport."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import ConfigError
from tidemill.serving.config import ServerConfig
from tidemill.serving.watched import stamp

__all__ = ["Certificates", "Pem"]

_LOG = logging.getLogger("tidemill.tls")


@dataclass(frozen=True, slots=True)
class Pem:
    """What the files hold.

    Attributes:
        chain: The certificate and those between it and a known authority.
        key: Its private key.
        clients: The authorities of clients' certificates; None to ask clients for none.
    """

    chain: bytes
    key: bytes
    clients: bytes | None


class Certificates:
    """Certificates that follow their files: renewed ones count for new connections, broken ones change nothing.

    Attributes:
        pem: What counts now.
        context: The same for Python's own TLS.
    """

    def __init__(self, chain: Path, key: Path, clients: Path | None = None) -> None:
        """Read the files.

        Args:
            chain: The certificate, with those that follow it, as PEM.
            key: Its private key as PEM, not encrypted.
            clients: Authorities as PEM; clients must then show a certificate of one of them.

        Raises:
            ConfigError: A file cannot be read, or they do not belong together.
        """
        self._chain, self._key, self._clients = chain, key, clients
        self._seen = self._stamps()
        self.pem = self._read()
        self.context = self._current = self._context()
        # The listening sockets keep the first context; each handshake is handed to the one that counts then. To change
        # the first would not do: an authority that was added cannot be taken away again.
        self.context.sni_callback = self._switch

    @classmethod
    def of(cls, config: ServerConfig) -> Certificates | None:
        """Those that the settings name; None for a server without TLS."""
        if config.tls_certificate is None or config.tls_key is None:
            return None
        return cls(config.tls_certificate, config.tls_key, config.tls_client_ca)

    def renew(self) -> bool:
        """Look whether a file has changed; True if others count from now on.

        Connections that are open keep what they began with.
        """
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        self._seen = stamps
        try:
            self.pem, self._current = self._read(), self._context()
        except ConfigError as error:
            _LOG.error("the certificates stay as they were: %s", error)
            return False
        _LOG.info("the certificates were read again")
        return True

    def _switch(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self._chain, self._key, password=_no_password)
            if self._clients:
                context.load_verify_locations(self._clients)
                context.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:  # SSLError among them
            files = ", ".join(str(path) for path in (self._chain, self._key, self._clients) if path)
            reason = getattr(error, "reason", None) or error.strerror
            raise ConfigError(f"{files} are no certificate with its key as PEM: {reason}") from None
        return context

    def _read(self) -> Pem:
        try:
            clients = self._clients.read_bytes() if self._clients else None
            return Pem(self._chain.read_bytes(), self._key.read_bytes(), clients)
        except OSError as error:
            raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from None

    def _stamps(self) -> tuple[object, ...]:
        return tuple(stamp(path) for path in (self._chain, self._key, self._clients))


def _no_password() -> str:
    raise ConfigError("the private key is encrypted; give one that is not (tls_key)")
