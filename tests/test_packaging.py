"""What a user gets from the package index: one wheel with every room once, and locks that fit pyproject.toml."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
ROOTS = ("proto", "client", "authoring", "modelzoo", "server")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DATA = {".binpb", ".typed", ".json", ".yaml", ".safetensors", ".html", ".css", ".js", ".svg"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(target)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = target.glob("*.whl")
    return path


def _shipped() -> set[str]:
    files = (path.relative_to(ROOT / root) for root in ROOTS for path in (ROOT / root / "tidemill").rglob("*"))
    return {file.as_posix() for file in files if file.suffix in {".py", *DATA} or file.name == "py.typed"}


def test_the_wheel_holds_every_source_file_once(wheel: Path) -> None:
    names = [name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert sorted(names) == sorted(_shipped())


def test_the_wheel_knows_its_types_its_licence_and_its_command(wheel: Path) -> None:
    archive = ZipFile(wheel)
    info = f"tidemill-{PROJECT['version']}.dist-info"
    assert {"tidemill/py.typed", f"{info}/licenses/LICENSE"} <= set(archive.namelist())
    assert "tidemill = tidemill.cli.main:main" in archive.read(f"{info}/entry_points.txt").decode()


@pytest.mark.parametrize("module", ["tidemill.client", "tidemill.nn", "tidemill.modelzoo", "tidemill.serving.run"])
def test_the_wheel_works_without_the_source_tree(wheel: Path, tmp_path: Path, module: str) -> None:
    ZipFile(wheel).extractall(tmp_path)
    # -S keeps the editable install's roots off the path: only the unpacked wheel can answer.
    program = f"import sys; sys.path[:0] = {[str(tmp_path), sysconfig.get_path('purelib')]}; import {module}"
    command = [sys.executable, "-S", "-c", f"{program}; print(sys.modules[{module!r}].__file__)"]
    loaded = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert loaded.stdout.startswith(str(tmp_path)), loaded.stderr


def _pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(package): version for package, version in pairs}


def _wanted(extra: str, seen: set[str]) -> list[Requirement]:
    """The requirements of an extra and of the extras of tidemill's own that it names."""
    seen.add(extra)
    found = [Requirement(line) for line in PROJECT["optional-dependencies"][extra]]
    own = {inner for requirement in found if requirement.name == "tidemill" for inner in requirement.extras} - seen
    outside = [requirement for requirement in found if requirement.name != "tidemill"]
    return outside + [requirement for inner in sorted(own) for requirement in _wanted(inner, seen)]


def test_the_lock_satisfies_what_pyproject_asks_for() -> None:
    pins = _pins("requirements.lock")
    wanted = [Requirement(line) for line in PROJECT["dependencies"]] + _wanted("dev", set())
    unmet = [str(it) for it in wanted if not it.specifier.contains(pins.get(canonicalize_name(it.name), "missing"))]
    assert unmet == []


@pytest.mark.parametrize(("extra", "allowed"), [("client", {"orjson"}), ("grpc", {"hpack", "protobuf"})])
def test_a_client_brings_little(extra: str, allowed: set[str]) -> None:
    assert {requirement.name for requirement in _wanted(extra, set())} == allowed


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("requirements.lock", ""),
        ("requirements-samples.lock", ""),
        ("requirements-weights.lock", " --hash=sha256:[0-9a-f]{64}"),
        ("requirements-weights-large.lock", " --hash=sha256:[0-9a-f]{64}"),
        ("requirements-weights-served.lock", " --hash=sha256:[0-9a-f]{64}"),
    ],
)
def test_a_lock_holds_names_and_versions_and_nothing_else(name: str, rest: str) -> None:
    lines = [line for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert lines
    assert [line for line in lines if not re.fullmatch(rf"[\w.-]+==[\w.]+{rest}", line)] == []
