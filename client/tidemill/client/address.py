"""Where a server is: URLs as people write them; opens nothing."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from tidemill.errors import ConfigError

__all__ = ["Address", "parse_address"]

_PORTS = {"http": 80, "https": 443, "grpc": 8001, "grpcs": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address.

    Attributes:
        scheme: "http", "https", "grpc" or "grpcs".
        host: A name or an address, IPv6 without brackets.
        port: The port.
        path: What stands before `/v2` in every path (a proxy's prefix), without a slash at its end.
    """

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def is_grpc(self) -> bool:
        """Whether gRPC is spoken there; else HTTP."""
        return self.scheme.startswith("grpc")

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme.endswith("s")

    @property
    def authority(self) -> str:
        """host:port, with brackets around IPv6."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


def parse_address(url: str) -> Address:
    """Read `http://HOST:PORT`, `https://`, `grpc://` or `grpcs://`; HTTP where no scheme is given.

    Raises:
        ConfigError: It is no such address, or holds a user, a query or a fragment.
    """
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{url!r} is no address: {error}") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigError(f"{url!r} is no address; give http://HOST:PORT for REST or grpc://HOST:PORT for gRPC")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError("an address holds no user, query or fragment; give a key as api_key")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigError(f"{url!r} is no address: it holds other characters than a URL may")
    return Address(parts.scheme, parts.hostname, _PORTS[parts.scheme] if port is None else port, parts.path.rstrip("/"))
