from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import Cancelled, InvalidArgument, TidemillError, TooLarge, UnsupportedEncoding
from tidemill.serving.http.body import choose_encoding, compress, decompress, read_body


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("", "identity"),
        ("gzip", "gzip"),
        ("gzip, deflate, br", "gzip"),
        ("deflate, gzip", "deflate"),
        ("gzip;q=0.5, deflate;q=0.8", "deflate"),
        ("gzip;q=0.5, identity", "identity"),
        ("br, zstd", "identity"),
        ("gzip;q=0", "identity"),
        ("GZIP ; q=1.0", "gzip"),
        ("gzip;q=high", "identity"),
        (";;,,=", "identity"),
    ],
)
def test_choice_of_encoding(accepted: str, chosen: str) -> None:
    assert choose_encoding(accepted) == chosen


@given(st.lists(st.binary(), max_size=4), st.sampled_from(["gzip", "deflate"]))
async def test_what_is_compressed_decompresses(buffers: list[bytes], encoding: str) -> None:
    whole = b"".join(buffers)
    (packed,) = await compress(buffers, encoding)
    assert await decompress(bytes(packed), encoding, len(whole)) == whole


async def test_large_bodies_pass_through_a_thread() -> None:
    whole = bytes(range(256)) * 4096
    (packed,) = await compress([whole], "gzip")
    assert gzip.decompress(packed) == whole
    assert await decompress(gzip.compress(whole), "gzip", len(whole)) == whole


@pytest.mark.parametrize(
    ("body", "encoding", "error"),
    [
        (b"plain", "br", UnsupportedEncoding),
        (gzip.compress(gzip.compress(b"x")), "gzip, gzip", UnsupportedEncoding),
        (b"not gzip", "gzip", InvalidArgument),
        (gzip.compress(b"x" * 100)[:-4], "gzip", InvalidArgument),
        (b"", "gzip", InvalidArgument),
        (gzip.compress(b"x") + b"more", "gzip", InvalidArgument),
        (gzip.compress(b"x"), "deflate", InvalidArgument),
        (zlib.compress(bytes(10_000_000)), "deflate", TooLarge),
        (gzip.compress(bytes(1001)), "gzip", TooLarge),
    ],
)
async def test_faulty_bodies(body: bytes, encoding: str, error: type[TidemillError]) -> None:
    with pytest.raises(error):
        await decompress(body, encoding, 1000)


async def read(*messages: dict[str, Any], limit: int = 10) -> bytes:
    waiting = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(waiting)

    return bytes(await read_body(receive, limit))


def part(body: bytes, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_bodies_are_joined_up_to_the_limit() -> None:
    assert await read(part(b"", False)) == b""
    assert await read(part(b"01234", True), part(b"56789", True), part(b"", False)) == b"0123456789"
    with pytest.raises(TooLarge, match="limit of 10 bytes"):
        await read(part(b"01234", True), part(b"567890", True))


async def test_a_client_that_leaves_before_the_end_is_noticed() -> None:
    with pytest.raises(Cancelled):
        await read(part(b"0", True), {"type": "http.disconnect"})
