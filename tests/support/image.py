"""The container image, built by buildah without an engine, and containers of it, run by podman as a cluster would."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Kept between runs: the base takes a minute to make.
WORK = ROOT / ".cache" / "deploy"
BASE = "localhost/python:3.11-slim-bookworm"
IMAGE = "localhost/tidemill:test"
TOOLS = ("buildah", "podman", "runc", "mmdebstrap")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CERTIFICATES = "/etc/ssl/certs"

_CONTAINERS = """
[containers]
default_ulimits=["nofile=20000:20000","nproc=30000:30000"]
[engine]
runtime="runc"
cgroup_manager="cgroupfs"
events_logger="file"
"""
_STORAGE = """
[storage]
driver="overlay"
graphroot="{work}/graph"
runroot="{work}/run"
"""
# What the chart's pod may and may not, as podman says it.
HARDENED = (
    *("--read-only", "--tmpfs=/tmp:rw,size=256m,mode=1777", "--tmpfs=/cache:rw,size=256m,mode=1777"),
    *("--cap-drop=ALL", "--security-opt=no-new-privileges", "--memory=1g", "--cpus=1", "--pids-limit=256"),
    "--network=host",
)


def tool(*command: str, timeout: float = 600.0) -> str:
    """What a tool prints; its own words in the error if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=_environment(), check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def build() -> None:
    """The image over a base of Debian's own packages, which stands in for the official one."""
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / "containers.conf").write_text(_CONTAINERS)
    (WORK / "storage.conf").write_text(_STORAGE.format(work=WORK))
    if BASE not in tool("buildah", "images", "--format", "{{.Name}}:{{.Tag}}"):
        _build_base()
    isolation = ["--isolation", "chroot", "--network", "host", "--format", "docker", "--layers"]
    given = ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro", "--build-arg", f"BASE_IMAGE={BASE}"]
    recipe = ["--file", str(ROOT / "docker" / "Dockerfile"), "--tag", IMAGE, str(ROOT)]
    tool("buildah", "bud", *isolation, *given, *recipe)


def _build_base() -> None:
    root = WORK / "base.tar"
    packages = "--include=python3,python3-venv,ca-certificates"
    tool("mmdebstrap", "--variant=minbase", packages, "bookworm", str(root))
    container = tool("buildah", "from", "scratch").splitlines()[-1]
    tool("buildah", "add", container, str(root), "/")
    tool("buildah", "config", "--env", f"PATH={PATH}", "--cmd", "python3", container)
    tool("buildah", "commit", "--rm", container, BASE)
    root.unlink()


def config() -> dict[str, Any]:
    """What the image says of how it is to be run."""
    found: dict[str, Any] = json.loads(tool("buildah", "inspect", "--type", "image", IMAGE))["Docker"]["config"]
    return found


@contextmanager
def filesystem() -> Iterator[Path]:
    """The image's files."""
    container = tool("buildah", "from", IMAGE).splitlines()[-1]
    try:
        yield Path(tool("buildah", "mount", container).splitlines()[-1])
    finally:
        tool("buildah", "umount", container)
        tool("buildah", "rm", container)


@dataclass(frozen=True)
class Container:
    """One that runs."""

    name: str

    def run(self, *command: str) -> str:
        return tool("podman", "exec", self.name, *command)

    def is_healthy(self) -> bool:
        done = subprocess.run(
            ["podman", "healthcheck", "run", self.name],
            capture_output=True,
            env=_environment(),
            timeout=60,
            check=False,
        )
        return done.returncode == 0

    def logs(self) -> str:
        done = subprocess.run(
            ["podman", "logs", self.name], capture_output=True, text=True, env=_environment(), timeout=60, check=True
        )
        return done.stdout + done.stderr

    def signal(self, name: str) -> None:
        tool("podman", "kill", "--signal", name, self.name)

    def exit_code(self) -> int:
        """Wait for the end."""
        return int(tool("podman", "wait", self.name, timeout=60).splitlines()[-1])


@contextmanager
def container(models: Path, *options: str, arguments: Sequence[str] = ()) -> Iterator[Container]:
    """The image, hardened as in the chart, with a repository at /models."""
    mounted = f"--volume={models}:/models:ro"
    name = tool("podman", "run", "--detach", *HARDENED, mounted, *options, IMAGE, *arguments).splitlines()[-1]
    try:
        yield Container(name)
    finally:
        tool("podman", "rm", "--force", "--time", "0", name)


def _environment() -> dict[str, str]:
    settings = {"CONTAINERS_CONF": f"{WORK}/containers.conf", "CONTAINERS_STORAGE_CONF": f"{WORK}/storage.conf"}
    return {**os.environ, **settings}
