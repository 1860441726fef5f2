"""Libraries with operators of one's own, checked before ONNX Runtime loads them: loading one runs its code."""

from __future__ import annotations

import platform
import struct
import sys
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

__all__ = ["check_library", "resolve_libraries"]

_ELF = b"\x7fELF"
_MACHINES = {"x86_64": 62, "aarch64": 183}
_SUFFIXES = {"linux": ".so", "darwin": ".dylib", "win32": ".dll"}


def resolve_libraries(paths: Iterable[str | PathLike[str]]) -> tuple[Path, ...]:
    """Absolute paths of libraries, each once, in the order given.

    Raises:
        ValueError: One is no library that this machine can load; see `check_library`.
    """
    libraries = [Path(path).absolute() for path in paths]
    for library in libraries:
        check_library(library)
    return tuple(dict.fromkeys(libraries))


def check_library(library: Path) -> None:
    """Raise ValueError, with what was expected, if a file is no library for this operating system and processor."""
    if library.suffix in (".mojo", ".mojopkg"):
        raise ValueError(f"{library} is Mojo, which only MAX runs; {_expected()}")
    if not library.is_file():
        what = "is a folder" if library.is_dir() else "does not exist"
        raise ValueError(f"custom extension {library} {what}; {_expected()}")
    if sys.platform == "linux":
        _check_elf(library)


def _check_elf(library: Path) -> None:
    with library.open("rb") as file:
        header = file.read(20)
    if len(header) < 20 or not header.startswith(_ELF):
        raise ValueError(f"custom extension {library} is no library of this system; {_expected()}")
    machine, own = struct.unpack_from("<H", header, 18)[0], _MACHINES.get(platform.machine())
    if own is not None and machine != own:
        names = {number: name for name, number in _MACHINES.items()}
        raise ValueError(
            f"custom extension {library} is built for {names.get(machine, f'processor {machine}')}, "
            f"this machine is {platform.machine()}; build it here"
        )


def _expected() -> str:
    suffix = _SUFFIXES.get(sys.platform, ".so")
    return f"an extension is a library of ONNX Runtime operators ({suffix}) with a function RegisterCustomOps"
