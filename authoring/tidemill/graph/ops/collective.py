"""Operators between devices, which ONNX has not; each says so by its name, and what to do instead."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = [
    "allgather",
    "allgather_rms_norm",
    "allgather_rms_norm_quant_mxfp6",
    "allgather_rms_norm_quant_mxfp8",
    "allreduce",
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
        raise NotImplementedError(
            f"ops.{self.__name__}: a tidemill model runs on one device; {self._instead}. "
            "To use several devices serve an instance on each."
        )

    def __getattr__(self, name: str) -> _Refused:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Refused(f"{self.__name__}.{name}", self._instead)

    def __repr__(self) -> str:
        return f"ops.{self.__name__} (refused)"


_SUM = "add the tensors with ops.add"
_JOIN = "join the tensors with ops.concat"
_SAME = "use the tensor itself, one device has it already"
_EXPERTS = "compute the experts of a nn.MoE on one device"

allgather = _Refused("allgather", _JOIN)
allgather_rms_norm = _Refused("allgather_rms_norm", f"{_JOIN}, then ops.rms_norm")
allgather_rms_norm_quant_mxfp6 = _Refused("allgather_rms_norm_quant_mxfp6", f"{_JOIN}, then ops.rms_norm")
allgather_rms_norm_quant_mxfp8 = _Refused("allgather_rms_norm_quant_mxfp8", f"{_JOIN}, then ops.rms_norm")
allreduce = _Refused("allreduce", _SUM)
bundled_allreduce = _Refused("bundled_allreduce", _SUM)
distributed_broadcast = _Refused("distributed_broadcast", _SAME)
distributed_ep = _Refused("distributed_ep", _EXPERTS)
distributed_scatter = _Refused("distributed_scatter", _SAME)
reduce_scatter_rms_norm = _Refused("reduce_scatter_rms_norm", f"{_SUM}, then ops.rms_norm")
reducescatter = _Refused("reducescatter", _SUM)
