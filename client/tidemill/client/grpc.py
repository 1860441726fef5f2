"""How gRPC is spoken with one server: the header blocks of its calls, as HTTP/2 sends them."""

from __future__ import annotations

from tidemill.client.address import Address
from tidemill.client.http2 import Http2Link
from tidemill.client.link import Links
from tidemill.client.settings import Settings
from tidemill.errors import ConfigError
from tidemill.protocol import rpc
from tidemill.protocol.http2 import literal

__all__ = ["grpc_links"]

# ":method: POST", and ":scheme: http" or "https", of the static table (RFC 7541, appendix A).
_POST, _HTTP, _HTTPS = b"\x83", b"\x86", b"\x87"


def grpc_links(address: Address, settings: Settings) -> Links:
    """The links of connections to a server.

    Raises:
        ConfigError: A header that is sent with every call holds other characters than ASCII.
    """
    heads = {method.name: _head(address, settings, rpc.method_path(method.name)) for method in rpc.METHODS}
    return Links(lambda: Http2Link(heads), "h2")


def _head(address: Address, settings: Settings, path: str) -> bytes:
    fields = {
        ":path": address.path + path,
        ":authority": address.authority,
        "te": "trailers",
        "content-type": "application/grpc",
        "grpc-accept-encoding": "identity",
        "user-agent": "tidemill",
        **settings.sent(),
    }
    block = _POST + (_HTTPS if address.is_tls else _HTTP)
    for name, value in fields.items():
        try:
            block += literal(name.encode("ascii"), value.encode("ascii"))
        except UnicodeEncodeError:
            raise ConfigError(f"header {name!r} holds other characters than ASCII, which gRPC cannot send") from None
    return block
