from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tidemill import nn
from tidemill.dtype import DType
from tidemill.engine.session import SessionOptions, open_session
from tidemill.errors import TidemillError
from tidemill.protocol import Array

IN, HIDDEN = 3, 4


def normal(*shape: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def parts(x: Array, hidden: Array, weights: Mapping[str, Array], end: str) -> tuple[list[Array], list[Array]]:
    gates = weights[f"weight_hh{end}"].shape[0] // HIDDEN
    biases = (weights.get(f"bias_ih{end}", np.float32(0)), weights.get(f"bias_hh{end}", np.float32(0)))
    inputs = x @ weights[f"weight_ih{end}"].T + biases[0]
    recurrent = hidden @ weights[f"weight_hh{end}"].T + biases[1]
    return np.split(inputs, gates, -1), np.split(recurrent, gates, -1)


def lstm_step(x: Array, state: list[Array], weights: Mapping[str, Array], end: str) -> list[Array]:
    enter, forget, cell, leave = (a + b for a, b in zip(*parts(x, state[0], weights, end), strict=True))
    following = sigmoid(forget) * state[1] + sigmoid(enter) * np.tanh(cell)
    return [sigmoid(leave) * np.tanh(following), following]


def gru_step(x: Array, state: list[Array], weights: Mapping[str, Array], end: str) -> list[Array]:
    inputs, recurrent = parts(x, state[0], weights, end)
    reset, update = (sigmoid(inputs[place] + recurrent[place]) for place in (0, 1))
    fresh = np.tanh(inputs[2] + reset * recurrent[2])
    return [(1 - update) * fresh + update * state[0]]


STEPS: dict[str, Callable[..., list[Array]]] = {"LSTM": lstm_step, "GRU": gru_step}
STATES = {"LSTM": 2, "GRU": 1}


def run_through(kind: str, x: Array, states: list[Array], weights: Mapping[str, Array], layers: int) -> list[Array]:
    """The hidden states [length, batch, ...], then the last states [layers * directions, batch, hidden]."""
    ends = ["", "_reverse"] if any("reverse" in name for name in weights) else [""]
    last: list[list[Array]] = []
    for layer in range(layers):
        outputs = []
        for end in ends:
            state = [one[len(last)] for one in states]
            seen = []
            for row in x if not end else x[::-1]:
                state = STEPS[kind](row, state, weights, f"_l{layer}{end}")
                seen.append(state[0])
            outputs.append(np.stack(seen if not end else seen[::-1]))
            last.append(state)
        x = np.concatenate(outputs, -1)
    return [x, *(np.stack(one) for one in zip(*last, strict=True))]


def flat(result: tuple[Any, Any]) -> list[Any]:
    output, state = result
    return [output, *(state if isinstance(state, tuple) else [state])]


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (2, False), (1, True), (2, True)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_sequences(run: Any, kind: str, layers: int, bidirectional: bool, has_bias: bool) -> None:
    layer = getattr(nn, kind)(IN, HIDDEN, num_layers=layers, bidirectional=bidirectional, has_bias=has_bias)
    x, rows = normal(5, 2, IN), layers * (1 + bidirectional)
    result = run(layer, x, dims=[("s", "b", IN)], call=lambda one, value: flat(one(value)))
    states = [np.zeros((rows, 2, HIDDEN), np.float32)] * STATES[kind]
    for actual, expected in zip(result.outputs, run_through(kind, x, states, result.weights, layers), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("symbolic", [False, True])
def test_batch_first_and_a_given_state(run: Any, kind: str, symbolic: bool) -> None:
    layer = getattr(nn, kind)(IN, HIDDEN, num_layers=2, bidirectional=True, batch_first=True)
    x, states = normal(2, 5, IN), [normal(4, 2, HIDDEN, seed=seed) for seed in range(STATES[kind])]
    dims = [("b", "s", IN), *[(4, "b", HIDDEN)] * len(states)] if symbolic else None
    call = lambda one, value, *state: flat(one(value, state if kind == "LSTM" else state[0]))  # noqa: E731
    result = run(layer, x, *states, dims=dims, call=call)
    output, *last = run_through(kind, x.swapaxes(0, 1), states, result.weights, 2)
    for actual, expected in zip(result.outputs, [output.swapaxes(0, 1), *last], strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_an_empty_batch_gives_empty_results(run: Any, kind: str, bidirectional: bool) -> None:
    layer = getattr(nn, kind)(IN, HIDDEN, bidirectional=bidirectional)
    x = np.zeros((5, 0, IN), np.float32)
    result = run(layer, x, dims=[("s", "b", IN)], call=lambda one, value: flat(one(value)))
    rows = 1 + bidirectional
    assert [array.shape for array in result.outputs] == [(5, 0, rows * HIDDEN), *[(rows, 0, HIDDEN)] * STATES[kind]]


@pytest.mark.parametrize("kind", STEPS)
def test_an_empty_sequence_fails_its_run_and_nothing_else(run: Any, kind: str) -> None:
    layer = getattr(nn, kind)(IN, HIDDEN)
    good = normal(2, 1, IN)
    result = run(layer, good, dims=[("s", "b", IN)], call=lambda one, value: flat(one(value)))
    session = open_session(result.model.SerializeToString(), SessionOptions(threads=1))
    name = result.graph.input_specs[0].name
    feed = {f"layer.{key}": value for key, value in result.weights.items()}
    for shape in ((0, 1, IN), (0, 0, IN)):
        with pytest.raises(TidemillError):
            session.run(feed | {name: np.zeros(shape, np.float32)})
    np.testing.assert_array_equal(session.run(feed | {name: good})["output_0"], result.outputs[0])


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("has_bias", [False, True])
def test_cells(run: Any, kind: str, has_bias: bool) -> None:
    layer = getattr(nn, f"{kind}Cell")(IN, HIDDEN, has_bias=has_bias)
    x, states = normal(2, IN), [normal(2, HIDDEN, seed=seed) for seed in range(STATES[kind])]
    call = lambda one, value, *state: one(value, state if kind == "LSTM" else state[0])  # noqa: E731
    result = run(layer, x, *states, call=call)
    for actual, expected in zip(result.outputs, STEPS[kind](x, states, result.weights, ""), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_keys_are_those_of_torch() -> None:
    shapes = {name: list(one.shape) for name, one in nn.LSTM(IN, HIDDEN, bidirectional=True).raw_state_dict().items()}
    one_way = {"weight_ih_l0": [16, 3], "weight_hh_l0": [16, 4], "bias_ih_l0": [16], "bias_hh_l0": [16]}
    assert shapes == one_way | {f"{name}_reverse": shape for name, shape in one_way.items()}
    assert list(nn.GRU(IN, HIDDEN, num_layers=2, has_bias=False).raw_state_dict()) == [
        f"weight_{kind}_l{layer}" for layer in (0, 1) for kind in ("ih", "hh")
    ]


def test_a_dtype_without_kernels_is_refused(run: Any) -> None:
    with pytest.raises(ValueError, match="float32 or float16"):
        run(nn.LSTM(IN, HIDDEN, DType.float64), np.zeros((2, 1, IN)))
