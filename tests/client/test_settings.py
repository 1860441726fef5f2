"""Addresses and settings: what people write, what the environment says, keys and certificates of a real server."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certificates import Authority
from zoo_server import serving

from tidemill import errors
from tidemill.client import AsyncClient, Client, Settings
from tidemill.client.address import parse_address

KEY = "a-key-of-the-test-itself"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("http://localhost:8000/", "http://localhost:8000"),
        ("https://models.example.org/proxy/", "https://models.example.org:443/proxy"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("grpc://localhost", "grpc://localhost:8001"),
    ],
)
def test_addresses(given: str, expected: str) -> None:
    assert str(parse_address(given)) == expected


@pytest.mark.parametrize("given", ["ftp://a", "http://", "http://a:b", "http://u:p@a", "http://a/?q", "http://a\r\nb/"])
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(errors.ConfigError):
        parse_address(given)


def test_the_environment() -> None:
    found = Settings.from_environment(
        {
            "TIDEMILL_URL": "http://a:1 grpc://a:2",
            "TIDEMILL_API_KEY": "k",
            "TIDEMILL_TIMEOUT": "2.5",
            "TIDEMILL_RETRIES": "0",
            "TIDEMILL_BINARY": "false",
            "TIDEMILL_CA": "ca.pem",
        }
    )
    assert found == Settings("http://a:1", api_key="k", timeout=2.5, retries=0, binary=False, ca="ca.pem")
    assert Settings.from_environment({}) == Settings()
    assert "'k'" not in repr(found)


@pytest.mark.parametrize(
    "fields", [{"timeout": 0}, {"retries": -1}, {"api_key": "a\r\nb: c"}, {"headers": {"": "x"}}], ids=str
)
def test_settings_that_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError):
        Settings(**fields)


def test_ipv6() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    with listener:
        thread.start()
        with Client(f"http://[::1]:{listener.getsockname()[1]}/") as client:
            assert client.server_ready()
        thread.join()


@pytest.fixture(scope="module")
def guarded(all_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], Settings]]:
    """A server that wants a certificate of its callers, and a key; what gets past both."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder)
    server, caller = authority.issue("server"), authority.issue("caller")
    keys = folder / "keys.yaml"
    keys.write_text(f"all: {KEY}\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMILL_TLS_CERTIFICATE", str(server.chain))
        patch.setenv("TIDEMILL_TLS_KEY", str(server.key))
        patch.setenv("TIDEMILL_TLS_CLIENT_CA", str(authority.path))
        patch.setenv("TIDEMILL_KEYS_FILE", str(keys))
        with serving(all_models) as addresses:
            settings = Settings("", KEY, ca=str(authority.path))
            yield addresses, replace(settings, certificate=str(caller.chain), certificate_key=str(caller.key))


@pytest.mark.parametrize("wire", ["http", "grpc"])
def test_keys_and_certificates(wire: str, guarded: tuple[dict[str, str], Settings]) -> None:
    addresses, settings = guarded
    url, x = f"{wire}s://{addresses[wire]}", np.ones((2, 2), np.float32)
    with Client(url, settings=settings) as client:
        for _ in range(3):
            assert client.infer("two", {"x": x})["y"].shape == (2, 2)

    async def ask() -> Any:
        async with AsyncClient(url, settings=settings) as client:
            return await asyncio.gather(*(client.infer("two", {"x": x}) for _ in range(4)))

    assert len(asyncio.run(ask())) == 4
    with Client(url, settings=replace(settings, api_key="")) as client, pytest.raises(errors.Unauthenticated):
        client.infer("two", {"x": x})
    for wrong in (replace(settings, ca=""), replace(settings, certificate="", certificate_key="")):
        with Client(url, settings=replace(wrong, retries=0)) as client, pytest.raises(errors.Unavailable):
            client.infer("two", {"x": x}, timeout=10)


def test_certificates_that_are_not_there(tmp_path: Path) -> None:
    for url in ("https://localhost:1", "grpcs://localhost:1"):
        with pytest.raises(errors.ConfigError, match="the certificates cannot be used"):
            Client(url, settings=Settings(ca=str(tmp_path / "missing.pem")))
