"""The image, built and run for real; `make deploy-test` does it where the tools are."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import image
import pytest

from tidemill.cli import main

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TIDEMILL_DEPLOY_TEST") != "1", reason="builds and runs the image; make deploy-test does it"
    ),
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in image.TOOLS), reason=f"needs {', '.join(image.TOOLS)} of Debian"
    ),
]

MEGABYTE = 1 << 20
SENTENCE = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["The cat sat on the mat."]}]}


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    image.build()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    assert main(["build", "mlp", "minilm", "--repository", str(folder)]) == 0
    for path in [folder, *folder.parents[:2], *folder.rglob("*")]:
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    return folder


@pytest.fixture
def ports() -> tuple[int, int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    found = listeners[0].getsockname()[1], listeners[1].getsockname()[1]
    for listener in listeners:
        listener.close()
    return found


@pytest.fixture
def server(models: Path, ports: tuple[int, int]) -> Iterator[tuple[image.Container, httpx.Client]]:
    given = [f"--env=TIDEMILL_HTTP_PORT={ports[0]}", f"--env=TIDEMILL_GRPC_PORT={ports[1]}"]
    window = "--env=TIDEMILL_DRAIN_WINDOW_SECONDS=1"
    with (
        image.container(models, *given, window) as container,
        httpx.Client(base_url=f"http://127.0.0.1:{ports[0]}", timeout=60) as client,
    ):
        _until_ready(client, container)
        yield container, client


def test_its_configuration() -> None:
    config = image.config()
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["tidemill"]
    assert config["Cmd"] == ["serve", "/models"]
    assert config["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]["Test"] == ["CMD", "tidemill", "health", "ready"]
    assert set(config["ExposedPorts"]) == {"8000/tcp", "8001/tcp"}
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_it_is_small_and_holds_no_tools() -> None:
    with image.filesystem() as root:
        files = [path for path in (root / "opt" / "venv").rglob("*") if not path.is_symlink() and path.is_file()]
        assert sum(path.stat().st_size for path in files) < 350 * MEGABYTE
        packages = {path.name.split("-")[0].lower() for path in root.glob("opt/venv/lib/python*/site-packages/*")}
        assert not packages & {"pip", "setuptools", "hatchling", "wheel"}
        assert {"onnxruntime", "tidemill"} <= packages
        modes = [path.stat().st_mode for path in files]
        assert not any(mode & (stat.S_ISUID | stat.S_IWGRP | stat.S_IWOTH) for mode in modes)
        assert all(path.stat().st_uid == 0 for path in files)


def test_it_serves_hardened_and_says_that_it_is_healthy(server: tuple[image.Container, httpx.Client]) -> None:
    container, client = server
    answer = client.post("/v2/models/minilm-text/infer", json=SENTENCE).json()
    assert answer["outputs"][0]["data"][:2] == pytest.approx([0.1302372, -0.0157728], abs=2e-5)
    assert container.is_healthy()
    assert container.run("id", "-u") == "10001"
    status = container.run("cat", "/proc/1/status")
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    with pytest.raises(AssertionError, match="Read-only file system"):
        container.run("touch", "/opt/venv/x")


def test_any_user_will_do(models: Path, ports: tuple[int, int]) -> None:
    given = [f"--env=TIDEMILL_HTTP_PORT={ports[0]}", f"--env=TIDEMILL_GRPC_PORT={ports[1]}", "--user=123456:0"]
    with (
        image.container(models, *given) as container,
        httpx.Client(base_url=f"http://127.0.0.1:{ports[0]}", timeout=60) as client,
    ):
        _until_ready(client, container)
        assert client.post("/v2/models/minilm-text/infer", json=SENTENCE).status_code == 200


def test_b38_at_sigterm_it_serves_on_then_ends_with_nothing_lost(server: tuple[image.Container, httpx.Client]) -> None:
    container, client = server
    answers: list[int] = []
    ready: list[int] = []
    under_way = threading.Barrier(5)

    def ask() -> None:
        with httpx.Client(base_url=client.base_url, timeout=60) as caller:
            answers.append(caller.post("/v2/models/minilm-text/infer", json=SENTENCE).status_code)
            under_way.wait(60)
            while len(ready) < 3:
                answers.append(caller.post("/v2/models/minilm-text/infer", json=SENTENCE).status_code)

    callers = [threading.Thread(target=ask) for _ in range(4)]
    for caller in callers:
        caller.start()
    under_way.wait(60)
    begun = time.monotonic()
    container.signal("TERM")
    while len(ready) < 3:
        if (status := client.get("/v2/health/ready").status_code) == 503:
            ready.append(status)
    for caller in callers:
        caller.join()
    assert set(answers) == {200}
    assert container.exit_code() == 0
    assert time.monotonic() - begun < 35


def test_a_wrong_setting_ends_it_with_a_reason(models: Path) -> None:
    with image.container(models, arguments=["serve", "/nowhere"]) as container:
        assert container.exit_code() == 1
        assert "/nowhere is not a folder" in container.logs()


def test_its_packages_are_those_of_the_lock_file() -> None:
    with image.filesystem() as root:
        (packages,) = root.glob("opt/venv/lib/python*/site-packages")
        found = dict(path.name.removesuffix(".dist-info").rsplit("-", 1) for path in packages.glob("*.dist-info"))
    lines = (image.ROOT / "requirements.lock").read_text().splitlines()
    locked = dict(line.split("==") for line in lines if "==" in line)
    normal = {name.lower().replace("_", "-"): version for name, version in locked.items()}
    installed = {name.lower().replace("_", "-"): version for name, version in found.items() if name != "tidemill"}
    assert installed == {name: normal.get(name) for name in installed}, json.dumps(installed)


def _until_ready(client: httpx.Client, container: image.Container) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if client.get("/v2/health/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(container.logs())
