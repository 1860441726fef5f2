"""Operators of the seed that ONNX has no way to do; each says so by its name, and what to do instead."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = [
    "allgather",
    "allgather_rms_norm",
    "allgather_rms_norm_quant_mxfp6",
    "allgather_rms_norm_quant_mxfp8",
    "allreduce",
    "buffer_create",
    "bundled_allreduce",
    "distributed_broadcast",
    "distributed_ep",
    "distributed_scatter",
    "reduce_scatter_rms_norm",
    "reducescatter",
]


class _Refused:
    """An operator, or a module of operators, that raises when it is called."""

    def __init__(self, name: str, instead: str) -> None:
        self.__name__ = name
        self.__doc__ = f"Refused: {instead}."
        self._instead = instead

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"ops.{self.__name__} is refused: {self._instead}.")

    def __getattr__(self, name: str) -> _Refused:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Refused(f"{self.__name__}.{name}", self._instead)

    def __repr__(self) -> str:
        return f"ops.{self.__name__} (refused)"


_ONE_DEVICE = "a model runs on one device (to use several, serve an instance on each); "
_JOIN = f"{_ONE_DEVICE}join the tensors with ops.concat"
_ADD = f"{_ONE_DEVICE}add the tensors with ops.add"
_SAME = f"{_ONE_DEVICE}use the tensor itself, which is there already"
_THEN_NORM = ", then ops.rms_norm"

allgather = _Refused("allgather", _JOIN)
allgather_rms_norm = _Refused("allgather_rms_norm", _JOIN + _THEN_NORM)
allgather_rms_norm_quant_mxfp6 = _Refused("allgather_rms_norm_quant_mxfp6", _JOIN + _THEN_NORM)
allgather_rms_norm_quant_mxfp8 = _Refused("allgather_rms_norm_quant_mxfp8", _JOIN + _THEN_NORM)
allreduce = _Refused("allreduce", _ADD)
bundled_allreduce = _Refused("bundled_allreduce", _ADD)
distributed_broadcast = _Refused("distributed_broadcast", _SAME)
distributed_ep = _Refused("distributed_ep", f"{_ONE_DEVICE}compute all experts there")
distributed_scatter = _Refused("distributed_scatter", _SAME)
reduce_scatter_rms_norm = _Refused("reduce_scatter_rms_norm", _ADD + _THEN_NORM)
reducescatter = _Refused("reducescatter", _ADD)
buffer_create = _Refused("buffer_create", "a model has no memory of its own; take the buffer as an input (BufferType)")
