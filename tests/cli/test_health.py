from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill.cli import main
from tidemill.serving import Server, ServerConfig

Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("restored_logging")


async def _ask(*arguments: str) -> int:
    return await asyncio.to_thread(main, ["health", *arguments])


async def test_it_tells_live_from_ready(write_model: Callable[..., Path], capsys: Capture) -> None:
    server = Server([write_model("two")], ServerConfig(http_port=0, grpc_port=0))
    await server.start()
    url, grpc = f"http://127.0.0.1:{server.http_port}", f"127.0.0.1:{server.grpc_port}"
    assert await _ask("live", "--url", url) == 0
    assert await _ask("ready", "--url", url) == 1
    assert "503" in capsys.readouterr().out
    await server.load()
    assert await _ask("--url", url, "--grpc", grpc) == 0
    assert capsys.readouterr().out == "ready\n"
    server.service.drain()
    assert await _ask("live", "--url", url) == 0
    assert await _ask("ready", "--url", url) == 1
    await server.stop()
    assert await _ask("live", "--url", url) == 1
    assert "did not answer" in capsys.readouterr().out


async def test_the_address_comes_from_the_servers_own_settings(
    write_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server([write_model("two")], ServerConfig(http_port=0, grpc_port=0))
    await server.start()
    await server.load()
    monkeypatch.setenv("TIDEMILL_HOST", "0.0.0.0")
    monkeypatch.setenv("TIDEMILL_HTTP_PORT", str(server.http_port))
    assert await _ask("ready") == 0
    await server.stop()


def test_a_server_that_says_nothing_is_not_waited_for_longer_than_asked(capsys: Capture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        assert main(["health", "--url", f"http://127.0.0.1:{silent.getsockname()[1]}", "--timeout", "0.2"]) == 1
    assert time.monotonic() - begun < 30
    assert "timed out" in capsys.readouterr().out


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1:1", "http://127.0.0.1:1"])
def test_an_address_that_nobody_answers_at_is_named(url: str, capsys: Capture) -> None:
    assert main(["health", "--url", url]) == 1
    assert url in capsys.readouterr().out
