"""The servers that are compared: how each is started, and which wires it speaks. Peers are in peers/."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from encoded import WIRES, Encode
from processes import HOST, Launch

__all__ = ["FLOORS", "SERVERS", "Place", "Server", "versions"]

_HERE = Path(__file__).parent


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
    """One server; `checked` says that its answers are compared with the runtime's."""

    launch: Callable[[Place], Launch]
    wires: Mapping[str, Encode] = field(default_factory=lambda: WIRES)
    checked: bool = True
    version: Callable[[], str] = lambda: "of this repository"


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

SERVERS: dict[str, Server] = {"tidemill": Server(_tidemill(), version=lambda: version("tidemill"))}


def versions(names: list[str]) -> dict[str, str]:
    """The version of each server, by name."""
    return {f"server {name}": SERVERS[name].version() for name in names}
