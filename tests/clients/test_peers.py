"""tidemill's client against other servers of the protocol, each in an environment of its own."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tidemill import errors
from tidemill.client import AsyncClient, Client, Settings

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PEERS = {
    "kserve": (".cache/peers/kserve", ".venv-clients/kserve"),
    "mlserver": (".cache/peers/mlserver", ".venv-clients/mlserver"),
    "triton": (".cache/peers/triton",),
}
X = np.arange(6, dtype=np.float32).reshape(2, 3)
_LIMIT_SECONDS = 90


@dataclass(frozen=True)
class Peer:
    """A server that runs, and what its client must know."""

    name: str
    addresses: dict[str, str]
    settings: Settings


@pytest.fixture(scope="module", params=PEERS)
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    pythons = [ROOT / place / "bin" / "python" for place in PEERS[request.param]]
    found = [python for python in pythons if python.exists()]
    if not found:
        pytest.skip(f"the environment of {request.param} is not there; make peers and make clients make it")
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = [str(listener.getsockname()[1]) for listener in (one, two)]
    folder = tmp_path_factory.mktemp(request.param)
    command = [str(found[0]), str(HERE / "peers" / f"{request.param}_server.py"), *ports]
    with (folder / "log").open("w") as log, subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as server:
        try:
            # MLServer has no binary extension.
            settings = Settings(binary=request.param != "mlserver")
            addresses = {"http": f"http://127.0.0.1:{ports[0]}", "grpc": f"grpc://127.0.0.1:{ports[1]}"}
            _wait(addresses, server, folder / "log")
            yield Peer(request.param, addresses, settings)
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait(addresses: dict[str, str], server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _LIMIT_SECONDS
    for url in addresses.values():
        with Client(url) as client:
            while not client.model_ready("double"):
                assert server.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < end, log.read_text()[-3000:]
                time.sleep(0.1)


@pytest.mark.parametrize("wire", ["http", "grpc"])
def test_the_shared_part_of_the_protocol(peer: Peer, wire: str) -> None:
    with Client(peer.addresses[wire], settings=peer.settings) as client:
        assert client.server_ready()
        assert client.model_ready("double")
        if (peer.name, wire) != ("mlserver", "grpc"):
            # MLServer answers UNKNOWN there, which may mean anything.
            assert not client.model_ready("nobody")
        assert client.server_metadata().name
        assert client.metadata("double").name == "double"
        for array in (X, np.asfortranarray(X), X.astype(">f4"), np.repeat(X, 2, axis=1)[:, ::2]):
            np.testing.assert_array_equal(client.infer("double", {"x": array}, id="7")["y"], X * 2)
        with pytest.raises(errors.TidemillError, match="nobody"):
            client.infer("nobody", {"x": X})


@pytest.mark.parametrize("wire", ["http", "grpc"])
async def test_many_awaited_calls(peer: Peer, wire: str) -> None:
    async with AsyncClient(peer.addresses[wire], settings=peer.settings) as client:
        answers = await asyncio.gather(*(client.infer("double", {"x": X + i}, timeout=30) for i in range(16)))
    for i, answer in enumerate(answers):
        np.testing.assert_array_equal(answer["y"], (X + i) * 2)
