"""Libraries of accelerators that lie in Python packages, made known to the loader before the first session."""

from __future__ import annotations

import contextlib
import ctypes
import io
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tidemill.engine.providers import CPU_PROVIDER, TENSORRT_PROVIDER

__all__ = ["preload", "tensorrt_libraries"]

_TENSORRT = ("libnvinfer.so.10", "libnvinfer_plugin.so.10", "libnvonnxparser.so.10")
"""In the order in which they need each other; ONNX Runtime is linked against version 10."""


def preload(runtime: Any, providers: Sequence[str]) -> None:
    """Load what the providers need and the system's loader would not find.

    What is missing is passed over; that the provider then does not start is found out by `check_providers`.

    Args:
        runtime: The onnxruntime module.
        providers: Full names.
    """
    if set(providers) <= {CPU_PROVIDER}:
        return
    with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does not find
        runtime.preload_dlls()
    if TENSORRT_PROVIDER in providers:
        for library in tensorrt_libraries(_package_folders("tensorrt_libs")):
            with contextlib.suppress(OSError):
                ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def tensorrt_libraries(folders: Iterable[Path]) -> list[Path]:
    """TensorRT's libraries in the folders of its package, in the order in which to load them."""
    places = list(folders)
    return [folder / name for name in _TENSORRT for folder in places if (folder / name).is_file()]


def _package_folders(name: str) -> list[Path]:
    found = find_spec(name)
    return [Path(folder) for folder in (found.submodule_search_locations or ())] if found else []
