"""Recurrent layers with torch's weights; torch's and ONNX's gates come in different orders."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.nn.layer.module import Module

__all__ = ["GRU", "LSTM"]


class _Recurrent(Module):
    """What LSTM and GRU have in common: weights by layer and direction, and the order of axes."""

    gates: int
    """How many gates a cell has."""
    order: tuple[int, ...]
    """For each of ONNX's gates, its place among torch's."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        dtype: DType = DType.float32,
        device: DeviceRef | None = None,
        num_layers: int = 1,
        has_bias: bool = True,
        batch_first: bool = False,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.dtype = dtype
        self.num_layers = num_layers
        self.has_bias = has_bias
        self.batch_first = batch_first
        self.directions = ("", "_reverse") if bidirectional else ("",)
        rows = self.gates * hidden_size
        for layer, direction in product(range(num_layers), self.directions):
            width = input_size if layer == 0 else hidden_size * len(self.directions)
            shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, width), "weight_hh": (rows, hidden_size)}
            if has_bias:
                shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
            for kind, shape in shapes.items():
                name = f"{kind}_l{layer}{direction}"
                setattr(self, name, Weight(name, dtype, shape, device))

    def _sequence(self, x: TensorValue) -> TensorValue:
        return ops.transpose(x, 0, 1) if self.batch_first else x

    def _output(self, x: TensorValue) -> TensorValue:
        return ops.transpose(x, 0, 1) if self.batch_first else x

    def _parameters(self, layer: int) -> tuple[TensorValue, TensorValue, TensorValue]:
        """One layer's weights as the operators take them."""
        inputs = ops.stack([self._ordered(f"weight_ih_l{layer}{end}") for end in self.directions])
        recurrent = ops.stack([self._ordered(f"weight_hh_l{layer}{end}") for end in self.directions])
        return inputs, recurrent, self._biases(layer)

    def _biases(self, layer: int) -> TensorValue:
        if not self.has_bias:
            shape = (len(self.directions), 2 * self.gates * self.hidden_size)
            return ops.constant(np.zeros(shape, self.dtype.to_numpy()))
        kinds = ("bias_ih", "bias_hh")
        rows = [ops.concat([self._ordered(f"{kind}_l{layer}{end}") for kind in kinds]) for end in self.directions]
        return ops.stack(rows)

    def _ordered(self, name: str) -> TensorValue:
        """A weight with its gates in ONNX's order."""
        pieces = ops.chunk(getattr(self, name), self.gates, axis=0)
        return ops.concat([pieces[place] for place in self.order])

    def _states(self, state: TensorValue) -> Sequence[TensorValue]:
        """Each layer's part of a state [layers * directions, batch, hidden]."""
        return ops.split(state, [len(self.directions)] * self.num_layers, axis=0)

    def _merged(self, hidden: TensorValue) -> TensorValue:
        """[length, directions, batch, hidden] -> [length, batch, directions * hidden]."""
        length, directions, batch, size = hidden.shape
        if directions == 1:
            return ops.squeeze(hidden, 1)
        return ops.reshape(ops.transpose(hidden, 1, 2), (length, batch, directions * size))


class LSTM(_Recurrent):
    """Long short-term memory over whole sequences (Hochreiter and Schmidhuber, 1997).

    The weights have torch's names and order of gates (input, forget, cell, output). ONNX's order is another, so the
    graph rearranges them, and the runtime keeps a rearranged copy of every weight of this layer beside the file's;
    `LSTMCell` reads its weights in place.

    A length of 0 fails the run; a batch of 0 gives empty results.

    Args:
        input_size: The last dim of the input.
        hidden_size: The size of the hidden state.
        dtype: The element type of input and weights: float32 or float16.
        device: Where the weights live.
        num_layers: How many layers are stacked.
        has_bias: Whether there are biases.
        batch_first: Whether sequences are [batch, length, ...], else [length, batch, ...].
        bidirectional: Whether each layer also reads backwards.

    Weights: for each layer N `weight_ih_lN` [4 * hidden_size, in], `weight_hh_lN` [4 * hidden_size, hidden_size],
    `bias_ih_lN` and `bias_hh_lN` [4 * hidden_size], and the same with `_reverse` at the end.
    """

    gates = 4
    order = (0, 3, 1, 2)

    def __call__(
        self, x: TensorValue, state: tuple[TensorValue, TensorValue] | None = None
    ) -> tuple[TensorValue, tuple[TensorValue, TensorValue]]:
        """Run over a sequence.

        Args:
            x: [length, batch, input_size], or [batch, length, input_size] with `batch_first`.
            state: Hidden and cell state [layers * directions, batch, hidden_size]; zeros by default.

        Returns:
            The last layer's hidden states, `x` with [directions * hidden_size] as the last dim, and the last state.
        """
        hidden = self._sequence(x)
        starts = None if state is None else list(zip(*(self._states(one) for one in state), strict=True))
        ends = []
        for layer in range(self.num_layers):
            outputs, *end = ops.lstm(hidden, self._parameters(layer), None if starts is None else starts[layer])
            hidden = self._merged(outputs)
            ends.append(end)
        last_hidden, last_cell = (ops.concat(list(parts)) for parts in zip(*ends, strict=True))
        return self._output(hidden), (last_hidden, last_cell)


class GRU(_Recurrent):
    """Gated recurrent unit over whole sequences (Cho et al., 2014), in torch's form.

    The weights have torch's names and order of gates (reset, update, new). ONNX's order is another, so the graph
    rearranges them, and the runtime keeps a rearranged copy of every weight of this layer beside the file's; `GRUCell`
    reads its weights in place.

    A length of 0 fails the run; a batch of 0 gives empty results.

    Args:
        input_size: The last dim of the input.
        hidden_size: The size of the hidden state.
        dtype: The element type of input and weights: float32 or float16.
        device: Where the weights live.
        num_layers: How many layers are stacked.
        has_bias: Whether there are biases.
        batch_first: Whether sequences are [batch, length, ...], else [length, batch, ...].
        bidirectional: Whether each layer also reads backwards.

    Weights: as in `LSTM`, with 3 instead of 4 times hidden_size.
    """

    gates = 3
    order = (1, 0, 2)

    def __call__(self, x: TensorValue, state: TensorValue | None = None) -> tuple[TensorValue, TensorValue]:
        """Run over a sequence.

        Args:
            x: [length, batch, input_size], or [batch, length, input_size] with `batch_first`.
            state: The hidden state [layers * directions, batch, hidden_size]; zeros by default.

        Returns:
            The last layer's hidden states, `x` with [directions * hidden_size] as the last dim, and the last state.
        """
        hidden = self._sequence(x)
        starts = None if state is None else self._states(state)
        ends = []
        for layer in range(self.num_layers):
            outputs, end = ops.gru(hidden, self._parameters(layer), None if starts is None else starts[layer])
            hidden = self._merged(outputs)
            ends.append(end)
        return self._output(hidden), ops.concat(ends)
