"""Where ONNX Runtime is imported; knows which packages bring it and nothing of models."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import Any

from tidemill.errors import LoadFailed

__all__ = ["onnxruntime", "warn_of_conflicts"]

_WHEELS = {"onnxruntime": "onnxruntime", "onnxruntime-gpu": "onnxruntime_gpu"}
"""By the names of their folders."""


def onnxruntime() -> Any:
    """The onnxruntime module.

    Raises:
        LoadFailed: It is not installed, or what is installed is broken; the message has the command that helps.
    """
    try:
        module = import_module("onnxruntime")
    except ModuleNotFoundError:
        raise LoadFailed(
            "running a model needs ONNX Runtime; run: pip install 'tidemill[cpu]' (with an NVIDIA GPU: 'tidemill[gpu]')"
        ) from None
    if not hasattr(module, "InferenceSession"):
        raise LoadFailed(
            "the installed onnxruntime is an empty shell, as is left when one of its two wheels is removed over the "
            "other; run: pip uninstall -y onnxruntime onnxruntime-gpu, then pip install 'tidemill[cpu]' or '[gpu]'"
        )
    return module


def warn_of_conflicts() -> None:
    """Warn if both of ONNX Runtime's wheels are installed: they overwrite each other's files without a word."""
    there = _installed()
    found = [wheel for wheel, folder in _WHEELS.items() if folder in there]
    if len(found) > 1:
        warnings.warn(
            f"{' and '.join(found)} are both installed and overwrite each other, so it is chance whether a GPU is "
            "used; run: pip uninstall -y onnxruntime onnxruntime-gpu, then pip install 'tidemill[cpu]' or '[gpu]'",
            RuntimeWarning,
            stacklevel=2,
        )


def _installed() -> set[str]:
    """The names of installed wheels' folders; importlib.metadata takes ten times as long to say whether one is."""
    found: set[str] = set()
    for place in sys.path:
        with suppress(OSError):  # a zip file, or nothing
            found.update(name.split("-")[0] for name in os.listdir(place or ".") if name.endswith(".dist-info"))
    return found
