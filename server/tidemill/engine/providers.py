"""Which execution providers run a model: what was asked for or an error that names the cause, never another one."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from tidemill.errors import ConfigError, LoadFailed

__all__ = [
    "CPU_PROVIDER",
    "CUDA_PROVIDER",
    "TENSORRT_PROVIDER",
    "check_available",
    "check_providers",
    "resolve_provider",
    "resolve_providers",
]

_LOG = logging.getLogger("tidemill.engine")

CPU_PROVIDER = "CPUExecutionProvider"
CUDA_PROVIDER = "CUDAExecutionProvider"
TENSORRT_PROVIDER = "TensorrtExecutionProvider"

_SUFFIX = "ExecutionProvider"
_NAMES = {"cpu": CPU_PROVIDER, "cuda": CUDA_PROVIDER, "tensorrt": TENSORRT_PROVIDER}
# What other builds of ONNX Runtime bring; they are run as they are, with no knowledge of their options.
_OTHERS = {
    short.lower(): f"{short}{_SUFFIX}"
    for short in ("CANN", "CoreML", "Dml", "Dnnl", "MIGraphX", "OpenVINO", "QNN", "VitisAI", "WebGpu", "Xnnpack")
}
_ALL = _NAMES | _OTHERS
_REMEDIES = {
    CUDA_PROVIDER: "it needs an NVIDIA driver for CUDA 13 and: pip install 'tidemill[gpu]'",
    TENSORRT_PROVIDER: "it needs an NVIDIA driver for CUDA 13 and: pip install 'tidemill[tensorrt]'",
}


def resolve_providers(requested: Sequence[str]) -> tuple[str, ...]:
    """ONNX Runtime's names of the requested providers, in order of preference.

    Args:
        requested: "cpu", "cuda", "tensorrt" or full names such as "CUDAExecutionProvider"; empty means the CPU.

    Raises:
        ConfigError: A name is unknown; the message suggests the nearest.
    """
    full = [resolve_provider(name) for name in requested] or [CPU_PROVIDER]
    return tuple(dict.fromkeys(full))


def resolve_provider(name: str) -> str:
    """ONNX Runtime's name of one provider; raises as `resolve_providers`."""
    if name in _ALL.values():
        return name
    try:
        return _ALL[name]
    except KeyError:
        close = get_close_matches(name, [*_ALL, *_ALL.values()], n=1)
        hint = f", did you mean {close[0]!r}?" if close else "."
        raise ConfigError(f"unknown provider {name!r}{hint} Known are {', '.join(_ALL)}") from None


def check_available(requested: Iterable[str], available: Iterable[str], *, allow_fallback: bool = False) -> list[str]:
    """The requested providers that the installed ONNX Runtime was built with.

    Args:
        requested: Full names.
        available: What ONNX Runtime was built with (which says nothing of whether it works here).
        allow_fallback: Whether to do without the others, with a warning.

    Raises:
        LoadFailed: One is not there, and no fall-back is allowed.
    """
    built, asked = list(available), list(requested)
    for name in asked:
        if name not in built:
            _refuse(f"the installed ONNX Runtime has no {name}; {_remedy(name, built)}", allow_fallback)
    return [name for name in asked if name in built] or [CPU_PROVIDER]


def check_providers(active: Iterable[str], requested: Iterable[str], *, allow_fallback: bool = False) -> None:
    """Raise LoadFailed if a session does not run on what was asked for, or warn if a fall-back is allowed.

    ONNX Runtime goes on with the CPU when a provider's libraries or its device are missing, with a line in the log.

    Args:
        active: The full names that a session reports.
        requested: The full names it was asked for.
        allow_fallback: Whether it may run on others.
    """
    running = list(active)
    for name in requested:
        if name not in running:
            _refuse(
                f"{name} was asked for and could not be started, ONNX Runtime runs on {', '.join(running)} instead; "
                f"{_remedy(name, running)}",
                allow_fallback,
            )


def _refuse(text: str, allow_fallback: bool) -> None:
    if not allow_fallback:
        raise LoadFailed(text)
    _LOG.warning("falling back, as allow_fallback says: %s", text)


def _remedy(name: str, instead: Iterable[str]) -> str:
    return _REMEDIES.get(name, f"there are {', '.join(instead)}")
