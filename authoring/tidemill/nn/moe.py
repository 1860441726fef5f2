"""Mixture of experts: each token goes through the few experts that a gate chooses for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.nn.layer.layer_list import LayerList
from tidemill.nn.layer.module import Module
from tidemill.nn.linear import Linear
from tidemill.nn.mlp import MLP

__all__ = ["MoE", "MoEGate"]


class MoEGate(Module):
    """Scores every expert for every token and picks the highest; subclass it to normalise the scores.

    Args:
        devices: Where the weights live; the first counts.
        hidden_dim: The size of a token.
        num_experts: How many experts there are.
        num_experts_per_token: How many are picked.
        dtype: The element type of the weight.
        linear_cls: What makes the projection, called as `Linear` is, by keywords.

    Weights: `gate_score.weight` [num_experts, hidden_dim].
    """

    def __init__(
        self,
        devices: Sequence[DeviceRef],
        hidden_dim: int,
        num_experts: int,
        num_experts_per_token: int,
        dtype: DType,
        linear_cls: Callable[..., Module] = Linear,
    ) -> None:
        super().__init__()
        self.num_experts_per_token = num_experts_per_token
        device = devices[0] if devices else None
        self.gate_score = linear_cls(in_dim=hidden_dim, out_dim=num_experts, dtype=dtype, device=device)

    def __call__(self, x: TensorValue) -> tuple[TensorValue, TensorValue]:
        """[tokens, hidden_dim] -> the experts' numbers (int64) and scores, both [tokens, num_experts_per_token]."""
        scores, indices = ops.top_k(self.gate_score(x), self.num_experts_per_token, axis=-1)
        return indices, scores


class MoE(Module):
    """The sum of the chosen experts' outputs, each times its score.

    Every expert computes only the tokens that chose it, all experts share one function in the exported model.

    Args:
        devices: Where the weights live; the first counts.
        hidden_dim: The last dim of input and output.
        num_experts: How many experts there are.
        num_experts_per_token: How many each token goes through.
        moe_dim: The last dim within an expert.
        gate_cls: What makes the gate, called as `MoEGate` is, by keywords.
        mlp_cls: What makes an expert, called as `MLP` is, by keywords.
        has_shared_experts: Whether there is an expert that all tokens go through.
        shared_experts_dim: The last dim within it.
        ep_size: Must be 1: experts are not spread over processes.
        dtype: The element type of the experts' weights.
        apply_router_weight_first: Multiply a token by its score before the expert, not the expert's output.
        gate_dtype: The element type of the gate's weight.

    Weights: those of `gate`, `experts.0`, `experts.1`, ... and, if any, `shared_experts`.

    Raises:
        ValueError: More experts are to be chosen than there are, or the shared expert has no size.
        NotImplementedError: `ep_size` is not 1.
    """

    def __init__(
        self,
        devices: Sequence[DeviceRef],
        hidden_dim: int,
        num_experts: int,
        num_experts_per_token: int,
        moe_dim: int,
        gate_cls: Callable[..., Module] = MoEGate,
        mlp_cls: Callable[..., Module] = MLP,
        has_shared_experts: bool = False,
        shared_experts_dim: int = 0,
        ep_size: int = 1,
        dtype: DType = DType.bfloat16,
        apply_router_weight_first: bool = False,
        gate_dtype: DType = DType.bfloat16,
    ) -> None:
        super().__init__()
        if ep_size != 1:
            raise NotImplementedError(f"MoE(ep_size={ep_size}): experts are not spread over processes; leave it at 1")
        if not 0 < num_experts_per_token <= num_experts or (has_shared_experts and shared_experts_dim < 1):
            raise ValueError(
                f"MoE: {num_experts_per_token} of {num_experts} experts are to be chosen, and the shared expert's dim "
                f"is {shared_experts_dim}; choose 1 to {num_experts}, and a dim of at least 1 if there is one"
            )

        def expert(width: int) -> Module:
            options: dict[str, Any] = {"dtype": dtype, "quantization_encoding": None, "devices": devices}
            return mlp_cls(hidden_dim=hidden_dim, feed_forward_length=width, **options)

        self.apply_router_weight_first = apply_router_weight_first
        self.gate = gate_cls(
            devices=devices,
            hidden_dim=hidden_dim,
            num_experts=num_experts,
            num_experts_per_token=num_experts_per_token,
            dtype=gate_dtype,
        )
        self.shared_experts = expert(shared_experts_dim) if has_shared_experts else None
        self.experts = LayerList([expert(moe_dim) for _ in range(num_experts)])

    def __call__(self, x: TensorValue) -> TensorValue:
        """[..., hidden_dim] -> [..., hidden_dim]."""
        tokens = ops.reshape(x, (-1, x.shape[-1]))
        chosen, scores = self.gate(tokens)
        scores = ops.cast(scores, x.dtype)
        if self.apply_router_weight_first:
            outputs = ops.dispatch(tokens, chosen, self.experts.layers, scores)
            mixed = ops.sum(outputs, axis=1)
        else:
            outputs = ops.dispatch(tokens, chosen, self.experts.layers)
            mixed = ops.matmul(ops.unsqueeze(scores, 1), outputs)
        result = ops.squeeze(mixed, 1)
        if self.shared_experts is not None:
            result = result + cast("TensorValue", self.shared_experts(tokens))
        return ops.reshape(result, x.shape)
