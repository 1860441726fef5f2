"""Recurrent cells: one step, for loops that the caller writes."""

from __future__ import annotations

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.nn.layer.module import Module

__all__ = ["GRUCell", "LSTMCell"]


class _Cell(Module):
    """The weights of one step, with torch's names."""

    gates: int
    """How many gates it has."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        dtype: DType = DType.float32,
        device: DeviceRef | None = None,
        has_bias: bool = True,
    ) -> None:
        super().__init__()
        rows = self.gates * hidden_size
        self.hidden_size = hidden_size
        self.weight_ih = Weight("weight_ih", dtype, (rows, input_size), device)
        self.weight_hh = Weight("weight_hh", dtype, (rows, hidden_size), device)
        self.bias_ih = Weight("bias_ih", dtype, (rows,), device) if has_bias else None
        self.bias_hh = Weight("bias_hh", dtype, (rows,), device) if has_bias else None

    def _products(self, x: TensorValue, hidden: TensorValue) -> tuple[list[TensorValue], list[TensorValue]]:
        """For each gate what comes from the input, and what from the state."""
        inputs = ops.linear(x, self.weight_ih, self.bias_ih)
        recurrent = ops.linear(hidden, self.weight_hh, self.bias_hh)
        return ops.chunk(inputs, self.gates, axis=-1), ops.chunk(recurrent, self.gates, axis=-1)


class LSTMCell(_Cell):
    """One step of long short-term memory; its weights are read as they lie in their file.

    Args:
        input_size: The last dim of the input.
        hidden_size: The size of the state.
        dtype: The element type of the weights.
        device: Where they live.
        has_bias: Whether there are biases.

    Weights: `weight_ih` [4 * hidden_size, input_size], `weight_hh` [4 * hidden_size, hidden_size], `bias_ih` and
    `bias_hh` [4 * hidden_size]; gates in the order input, forget, cell, output.
    """

    gates = 4

    def __call__(self, x: TensorValue, state: tuple[TensorValue, TensorValue]) -> tuple[TensorValue, TensorValue]:
        """[batch, input_size] and the hidden and cell state [batch, hidden_size] -> the next two."""
        hidden, cell = state
        sums = [a + b for a, b in zip(*self._products(x, hidden), strict=True)]
        enter, forget, leave = (ops.sigmoid(sums[place]) for place in (0, 1, 3))
        following = forget * cell + enter * ops.tanh(sums[2])
        return leave * ops.tanh(following), following


class GRUCell(_Cell):
    """One step of a gated recurrent unit; its weights are read as they lie in their file.

    Args:
        input_size: The last dim of the input.
        hidden_size: The size of the state.
        dtype: The element type of the weights.
        device: Where they live.
        has_bias: Whether there are biases.

    Weights: as in `LSTMCell`, with 3 instead of 4 times hidden_size; gates in the order reset, update, new.
    """

    gates = 3

    def __call__(self, x: TensorValue, state: TensorValue) -> TensorValue:
        """[batch, input_size] and the state [batch, hidden_size] -> the next state."""
        inputs, recurrent = self._products(x, state)
        reset, update = (ops.sigmoid(inputs[place] + recurrent[place]) for place in (0, 1))
        fresh = ops.tanh(inputs[2] + reset * recurrent[2])
        return fresh + update * (state - fresh)
