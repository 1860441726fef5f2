"""The image's recipe and the compose file, read; test_image.py builds and runs them where the tools are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidemill.serving.config import load_server_config

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
FILES = ["Dockerfile", "Dockerfile.gpu"]


@pytest.mark.parametrize("name", FILES)
def test_hadolint_finds_nothing(name: str) -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([hadolint, str(DOCKER / name)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", FILES)
def test_the_image_runs_as_nobody_in_particular_and_ends_by_signal(name: str) -> None:
    lines = (DOCKER / name).read_text().splitlines()
    assert "USER 10001:10001" in lines
    assert "STOPSIGNAL SIGTERM" in lines
    assert json.loads(_last(lines, "ENTRYPOINT")) == ["tidemill"]
    assert json.loads(_last(lines, "CMD")) == ["serve", "/models"]
    assert any(re.fullmatch(r'HEALTHCHECK .* CMD \["tidemill", "health", "ready"\]', line) for line in lines)
    assert not any("secret" in line.lower() or "ADD " in line for line in lines)


def test_the_two_recipes_differ_only_in_what_runs_the_models() -> None:
    copied = [re.findall(r"^COPY (?!--from)(.*)$", (DOCKER / name).read_text(), re.M) for name in FILES]
    assert copied[0] == copied[1]
    extras = [re.search(r"^ARG EXTRAS=(.*)$", (DOCKER / name).read_text(), re.M) for name in FILES]
    parts = "server,cpu,client,objectstore,zoo,image,redis,structured,tracing"
    assert [found[1].replace("gpu", "cpu") for found in extras if found] == [parts] * 2


def test_what_the_image_is_built_from_is_sent_and_nothing_else() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (DOCKER / "Dockerfile").read_text(), re.M)
    assert {source for line in copied for source in line.split()} == sent


def test_compose_gives_the_server_time_to_drain_and_nothing_to_write_to() -> None:
    services = _compose()["services"]
    for name in ("server", "server-gpu"):
        service = services[name]
        drain = load_server_config(environ=service["environment"])
        grace = float(service["stop_grace_period"].rstrip("s"))
        assert grace >= drain.drain_window_seconds + drain.drain_limit_seconds + 5
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert (ROOT / "docker" / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_compose_mounts_files_that_exist() -> None:
    for service in _compose()["services"].values():
        for volume in service.get("volumes", []):
            if volume.startswith((".", "/")):
                assert (DOCKER / volume.split(":")[0]).exists(), volume


def test_prometheus_scrapes_the_server_by_its_port() -> None:
    config = yaml.safe_load((DOCKER / "prometheus" / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"server:{load_server_config().http_port}"]


def _compose() -> Any:
    return yaml.safe_load((DOCKER / "compose.yaml").read_text())


def _last(lines: list[str], word: str) -> str:
    return [line.removeprefix(word).strip() for line in lines if line.startswith(f"{word} ")][-1]
