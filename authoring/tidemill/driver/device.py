"""Where a buffer lies: the host or an accelerator; asks ONNX Runtime only when an accelerator is named."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

__all__ = ["CPU", "Accelerator", "Device", "accelerator_count", "require_onnxruntime"]


@dataclass(frozen=True)
class Device:
    """A place for buffers; made by `CPU()` or `Accelerator()`.

    Attributes:
        label: "cpu" or "gpu".
        id: The number among devices of this kind.
    """

    label: str
    id: int

    @property
    def is_host(self) -> bool:
        """Whether numpy can see the memory."""
        return self.label == "cpu"

    @property
    def api(self) -> str:
        """What drives the device, by ONNX Runtime's device name."""
        return "cpu" if self.is_host else "cuda"

    def __str__(self) -> str:
        return f"Device(type={self.label},id={self.id})"


class CPU(Device):
    """The host's memory."""

    def __init__(self, id: int = 0) -> None:  # noqa: A002 - the name callers of `max.driver` use
        super().__init__("cpu", id)


class Accelerator(Device):
    """An NVIDIA GPU that ONNX Runtime can allocate on.

    Raises:
        RuntimeError: There is no such device, or the installed ONNX Runtime cannot use it.
    """

    def __init__(self, id: int = 0) -> None:  # noqa: A002 - the name callers of `max.driver` use
        super().__init__("gpu", id)
        _probe(self)


def accelerator_count() -> int:
    """How many accelerators can be used; 0 without ONNX Runtime's GPU build."""
    count = 0
    while True:
        try:
            Accelerator(count)
        except RuntimeError:
            return count
        count += 1


def require_onnxruntime(purpose: str) -> Any:
    """The onnxruntime module; RuntimeError with the command to install it."""
    try:
        return importlib.import_module("onnxruntime")
    except ModuleNotFoundError:
        raise RuntimeError(
            f"{purpose} needs ONNX Runtime with its GPU build; run: pip install 'tidemill[gpu]'"
        ) from None


def _probe(device: Device) -> None:
    runtime = require_onnxruntime(f"Accelerator({device.id})")
    try:
        runtime.OrtValue.ortvalue_from_shape_and_type([1], "float32", device.api, device.id)
    except RuntimeError as error:
        raise RuntimeError(
            f"no accelerator {device.id}: {error} The GPU build is installed by: pip install 'tidemill[gpu]'"
        ) from None
