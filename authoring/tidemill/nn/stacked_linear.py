"""StackedLinear: several affine maps of one input, their outputs side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.nn.layer.module import Module
from tidemill.nn.linear import Linear, refuse_quantization

__all__ = ["StackedLinear"]


class StackedLinear(Module):
    """x @ concat(weights).T + concat(biases), for checkpoints that hold the weights stacked or one by one.

    Unstacked, the children's names stand in the place of this module's own: at attribute `qkv_proj` with the names
    q_proj, k_proj and v_proj its weights are `q_proj.weight` and so on. Each child multiplies by itself; stacking the
    weights in the graph would cost a second copy of them in memory.

    Args:
        in_dim: The last dim of the input.
        out_dims: The last dim of each map's output.
        names: The name of each map.
        dtype: The element type of the weights.
        device: Where the weights live.
        stacked: Whether the checkpoint holds one weight for all maps.
        has_bias: Whether there are biases.
        linear_cls: What makes a child, called as `Linear` is, by keywords.
        quant_config: Must be None.
        clip_weight: Clip each weight to [-clip_weight, clip_weight].

    Weights: `weight` [sum(out_dims), in_dim] and `bias` if stacked, else those of the children.

    Raises:
        ValueError: The numbers of names and dims differ, or a stacked weight is to be clipped.
    """

    def __init__(
        self,
        in_dim: int,
        out_dims: Sequence[int],
        names: Sequence[str],
        dtype: DType,
        device: DeviceRef | None = None,
        stacked: bool = False,
        has_bias: bool = False,
        linear_cls: Callable[..., Module] = Linear,
        quant_config: Any = None,
        clip_weight: float | None = None,
    ) -> None:
        super().__init__()
        refuse_quantization("StackedLinear", None, quant_config)
        if stacked and clip_weight:
            raise ValueError("clip_weight is not yet supported with stacked=True.")
        self._stacked = stacked
        self._names = tuple(names)
        if stacked:
            self.weight = Weight("weight", dtype, (sum(out_dims), in_dim), device)
            self.bias = Weight("bias", dtype, (sum(out_dims),), device) if has_bias else None
            return
        shared: dict[str, Any] = {"dtype": dtype, "device": device, "has_bias": has_bias, "clip_weight": clip_weight}
        for name, out_dim in zip(names, out_dims, strict=True):
            setattr(self, name, linear_cls(in_dim=in_dim, out_dim=out_dim, quant_config=quant_config, **shared))

    @property
    def _omit_module_attr_name(self) -> bool:
        return not self._stacked

    @property
    def stacked_weight(self) -> TensorValue:
        """All weights as one [sum(out_dims), in_dim]; a copy in the runtime's memory unless they are stacked."""
        return self.weight if self._stacked else ops.concat([child.weight for child in self._children()])

    @property
    def stacked_bias(self) -> TensorValue | None:
        """All biases as one [sum(out_dims)]; None if there are none."""
        if self._stacked:
            return self.bias
        biases = [child.bias for child in self._children() if child.bias is not None]
        return ops.concat(biases) if biases else None

    def __call__(self, x: TensorValue) -> TensorValue:
        """[..., in_dim] -> [..., sum(out_dims)]."""
        if self._stacked:
            return ops.linear(x, self.weight, self.bias)
        return ops.concat([child(x) for child in self._children()], axis=-1)

    def _children(self) -> list[Linear]:
        return [cast("Linear", getattr(self, name)) for name in self._names]
