"""Which execution providers run a model: what was asked for or an error that names the cause, never another one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from tidemill.errors import ConfigError, LoadFailed

__all__ = ["CPU_PROVIDER", "check_available", "check_providers", "resolve_providers"]

CPU_PROVIDER = "CPUExecutionProvider"

_FULL_NAMES = {
    "cpu": CPU_PROVIDER,
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}
_REMEDIES = {
    "CUDAExecutionProvider": "it needs an NVIDIA driver for CUDA 13 and: pip install 'tidemill[gpu]'",
    "TensorrtExecutionProvider": "it needs an NVIDIA driver for CUDA 13 and: pip install 'tidemill[tensorrt]'",
}


def resolve_providers(requested: Sequence[str]) -> tuple[str, ...]:
    """ONNX Runtime's names of the requested providers, in order of preference.

    Args:
        requested: "cpu", "cuda", "tensorrt" or full names such as "CUDAExecutionProvider"; empty means the CPU.

    Raises:
        ConfigError: A name is unknown; the message suggests the nearest.
    """
    full = [_full_name(name) for name in requested] or [CPU_PROVIDER]
    return tuple(dict.fromkeys(full))


def check_available(requested: Iterable[str], available: Iterable[str]) -> None:
    """Raise LoadFailed if the installed ONNX Runtime was built without a requested provider.

    Args:
        requested: Full names.
        available: What ONNX Runtime was built with (which says nothing of whether it works here).
    """
    built = list(available)
    for name in requested:
        if name not in built:
            raise LoadFailed(f"the installed ONNX Runtime has no {name}; {_remedy(name, built)}")


def check_providers(active: Iterable[str], requested: Iterable[str]) -> None:
    """Raise LoadFailed if a session does not run on what was asked for.

    ONNX Runtime goes on with the CPU when a provider's libraries or its device are missing, with a line in the log.

    Args:
        active: The full names that a session reports.
        requested: The full names it was asked for.
    """
    running = list(active)
    for name in requested:
        if name not in running:
            raise LoadFailed(
                f"{name} was asked for and could not be started, ONNX Runtime would run on {', '.join(running)} "
                f"instead; {_remedy(name, running)}"
            )


def _full_name(name: str) -> str:
    if name.endswith("ExecutionProvider") and name in _FULL_NAMES.values():
        return name
    try:
        return _FULL_NAMES[name]
    except KeyError:
        close = get_close_matches(name, [*_FULL_NAMES, *_FULL_NAMES.values()], n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise ConfigError(f"unknown provider {name!r}{hint} Known are {', '.join(_FULL_NAMES)}") from None


def _remedy(name: str, instead: Iterable[str]) -> str:
    return _REMEDIES.get(name, f"there are {', '.join(instead)}")
