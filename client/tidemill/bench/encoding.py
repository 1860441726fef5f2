"""Requests as the bytes that go over a connection, made once before the load; knows no sockets."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from tidemill.bench.settings import Settings
from tidemill.dtype import DType
from tidemill.protocol.requested import region_parameters
from tidemill.protocol.rest import HEADER_LENGTH, format_infer_request
from tidemill.protocol.tensors import to_bytes
from tidemill.protocol.types import Array, InferRequest, RegionSlice

__all__ = ["Address", "encode", "encode_shared"]

_FRAME = struct.Struct(">BI")


@dataclass(frozen=True, slots=True)
class Address:
    """A server's host, port, and whether it is spoken to over TLS."""

    host: str
    port: int
    tls: bool

    @classmethod
    def of(cls, url: str) -> Address:
        """Read "http://host:port", "https://", "grpc://" or "grpcs://"."""
        parts = urlsplit(url)
        tls = parts.scheme in ("https", "grpcs")
        return cls(parts.hostname or "localhost", parts.port or (443 if tls else 80), tls)

    @property
    def authority(self) -> str:
        """As HTTP writes it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def encode(settings: Settings, wire: str, feeds: Sequence[Mapping[str, Array]]) -> list[bytes]:
    """Requests for "json" and "binary" as whole HTTP/1.1 messages, for "grpc" as length-prefixed messages.

    Raises:
        InvalidArgument: An input has no form on this wire; the message names it.
    """
    requests = [InferRequest(settings.model, feed, settings.version) for feed in feeds]
    return [_grpc(it) if wire == "grpc" else _rest(it, settings, binary=wire == "binary") for it in requests]


def _grpc(request: InferRequest) -> bytes:
    from tidemill.protocol.rpc import request_to_message

    message: bytes = request_to_message(request).SerializeToString()
    return _FRAME.pack(0, len(message)) + message


def _rest(request: InferRequest, settings: Settings, *, binary: bool) -> bytes:
    header_length, parts = format_infer_request(request, binary)
    return _post(settings, b"".join(parts), header_length)


def encode_shared(
    settings: Settings, feed: Mapping[str, Array], inputs: Mapping[str, RegionSlice], outputs: Mapping[str, RegionSlice]
) -> bytes:
    """A REST request that names where its tensors lie and where the answer's are to go."""
    import orjson

    document = {
        "inputs": [
            {
                "name": name,
                "datatype": DType.from_numpy(array.dtype).wire,
                "shape": list(array.shape),
                "parameters": region_parameters(inputs[name]),
            }
            for name, array in feed.items()
        ],
        "outputs": [{"name": name, "parameters": region_parameters(place)} for name, place in outputs.items()],
    }
    return _post(settings, orjson.dumps(document), None)


def tensor_bytes(name: str, array: Array) -> bytes | memoryview:
    """A tensor as it lies in shared memory."""
    return to_bytes(array, DType.from_numpy(array.dtype), name=f"input {name!r}")


def _post(settings: Settings, body: bytes, header_length: int | None) -> bytes:
    path = f"/v2/models/{quote(settings.model, safe='')}"
    path += f"/versions/{quote(settings.version, safe='')}" if settings.version else ""
    headers = {
        "host": Address.of(settings.http_url).authority,
        "content-length": str(len(body)),
        "content-type": "application/json" if header_length is None else "application/octet-stream",
        **dict(settings.headers),
    }
    if header_length is not None:
        headers[HEADER_LENGTH.lower()] = str(header_length)
    lines = [f"POST {path}/infer HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body
