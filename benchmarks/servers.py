"""The servers that are compared: how each is started, and which wires it speaks. Peers are in peers/."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from encoded import WIRES, Encode
from processes import HOST, Launch

__all__ = ["FLOORS", "SERVERS", "Place", "Server", "at_hand", "versions"]

_HERE = Path(__file__).parent
PEERS = _HERE.parent / ".cache" / "peers"


@dataclass(frozen=True)
class Place:
    """What a server is given.

    Attributes:
        repository: A folder that holds the one model: NAME/1/model.onnx.
        model: The model's name.
        ports: Of REST and gRPC, and two more for whatever a server insists on.
        reply_bytes: Size of the model's outputs, for servers that only pretend.
    """

    repository: Path
    model: str
    ports: tuple[int, ...]
    reply_bytes: int


@dataclass(frozen=True)
class Server:
    """One server; `checked` says that its answers are compared with the runtime's, `environment` which one it needs."""

    launch: Callable[[Place], Launch]
    wires: Mapping[str, Encode] = field(default_factory=lambda: WIRES)
    checked: bool = True
    version: Callable[[], str] = lambda: "of this repository"
    environment: str = ""


def _python(script: str, *arguments: object) -> list[str]:
    return [sys.executable, str(_HERE / script), *map(str, arguments)]


def _floor(place: Place) -> Launch:
    return Launch(_python("floor.py", place.ports[0], place.reply_bytes), place.ports[0], "/")


def _grpcio(kind: str) -> Callable[[Place], Launch]:
    return lambda place: Launch(_python("grpc_floor.py", kind, place.ports[1], place.reply_bytes), place.ports[1])


def _tidemill(*flags: str) -> Callable[[Place], Launch]:
    def launch(place: Place) -> Launch:
        ports = ["--http-port", str(place.ports[0]), "--grpc-port", str(place.ports[1]), "--log-level", "warning"]
        command = [sys.executable, "-m", "tidemill.cli", "serve", str(place.repository), "--host", HOST, *ports, *flags]
        return Launch(command, place.ports[0], "/v2/health/ready")

    return launch


FLOORS: dict[str, Server] = {
    "floor": Server(_floor, {"binary": WIRES["binary"]}, checked=False),
    "grpcio aio": Server(_grpcio("aio"), {"grpc": WIRES["grpc"]}, False, lambda: version("grpcio")),
    "grpcio sync": Server(_grpcio("sync"), {"grpc": WIRES["grpc"]}, False, lambda: version("grpcio")),
}
"""The least that can be done: what no server on these parts can beat."""


def _peer(environment: str, script: str, ports: int, path: str) -> Callable[[Place], Launch]:
    """A peer's server in its own environment, given the ONNX file, a name and its ports."""

    def launch(place: Place) -> Launch:
        python = _python_of(environment)
        if not python.exists():
            raise SystemExit(f"the environment of {environment} is not there; run: make peers")
        model = place.repository / place.model / "1" / "model.onnx"
        command = [python, _HERE / "peers" / script, model, place.model, *place.ports[:ports]]
        return Launch([*map(str, command)], place.ports[0], path.format(model=place.model))

    return launch


def _locked(environment: str) -> Callable[[], str]:
    """The version that a peer's list of packages names first."""
    return lambda: (_HERE / "peers" / f"{environment}.txt").read_text().split()[0].partition("==")[2]


_READY = "/v2/models/{model}/ready"

SERVERS: dict[str, Server] = {
    "tidemill": Server(_tidemill(), version=lambda: version("tidemill")),
    "tidemill fast gRPC": Server(
        _tidemill("--grpc-fast-lane"), {"grpc": WIRES["grpc"]}, version=lambda: version("tidemill")
    ),
    "PyTriton": Server(
        _peer("triton", "pytriton_server.py", 3, _READY), version=_locked("triton"), environment="triton"
    ),
    "KServe": Server(_peer("kserve", "kserve_server.py", 2, _READY), version=_locked("kserve"), environment="kserve"),
    "FastAPI": Server(
        _peer("fastapi", "fastapi_server.py", 1, "/docs"),
        {"json": WIRES["json"]},
        version=_locked("fastapi"),
        environment="fastapi",
    ),
}
"""Those that are compared; peers take `make peers`."""


def at_hand() -> list[str]:
    """The servers whose environment is there."""
    return [
        name for name, server in SERVERS.items() if not server.environment or _python_of(server.environment).exists()
    ]


def _python_of(environment: str) -> Path:
    return PEERS / environment / "bin" / "python"


def versions(names: list[str]) -> dict[str, str]:
    """The version of each server, by name."""
    return {f"server {name}": SERVERS[name].version() for name in names}
