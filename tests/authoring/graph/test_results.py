"""What a module may take and return (B25), from the trace to batched serving."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tidemill import nn
from tidemill.batching import Batcher, BatchingOptions
from tidemill.dtype import DType
from tidemill.engine import Instance
from tidemill.errors import InvalidArgument
from tidemill.graph import DeviceRef, TensorType, Weight, ops
from tidemill.protocol.signature import check_inputs

F32 = DType.float32
CPU = DeviceRef.CPU()


class Returns(nn.Module):
    """Returns what a function makes of its input and a weight of ones."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.function = function
        self.one = Weight("one", F32, (3,), CPU)

    def __call__(self, x: Any, unused: Any) -> Any:
        return self.function(x, self.one)


@dataclasses.dataclass
class Pair:
    left: Any
    right: Any


class Named(NamedTuple):
    mean: Any
    twice: Any


def instance(function: Callable[[Any, Any], Any], folder: Path) -> Instance:
    kind = TensorType(F32, ["batch", 3], CPU)
    weights = {"one": np.ones(3, np.float32)}
    module = Returns(function)
    return Instance.open(module.bundle(kind, kind, weights=weights).write(folder / "model"))


RESULTS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], dict[str, Any]]]] = {
    "the input": (lambda x, w: x, lambda x: {"output": x}),
    "a constant and the input": (lambda x, w: (x * 0 + 2, x), lambda x: {"output_0": x * 0 + 2, "output_1": x}),
    "one value twice": (lambda x, w: [x + 1] * 2, lambda x: {"output_0": x + 1, "output_1": x + 1}),
    "the input twice": (lambda x, w: (x, x), lambda x: {"output_0": x, "output_1": x}),
    "a value and its sum": (lambda x, w: (y := x + 1, y + 0), lambda x: {"output_0": x + 1, "output_1": x + 1}),
    "a folded branch": (lambda x, w: x if True else w, lambda x: {"output": x}),
    "a dict": (lambda x, w: {"b": x, "a": x + w}, lambda x: {"b": x, "a": x + 1}),
    "a dataclass": (lambda x, w: Pair(x, x + w), lambda x: {"left": x, "right": x + 1}),
    "a named tuple": (lambda x, w: Named(x, x + x), lambda x: {"mean": x, "twice": x + x}),
}


@pytest.mark.parametrize("case", RESULTS)
async def test_results_are_right_alone_and_in_batches(case: str, tmp_path: Path) -> None:
    function, expected = RESULTS[case]
    model = instance(function, tmp_path)
    batcher = Batcher(model.run, BatchingOptions(max_batch_size=8))
    random = np.random.default_rng(0)
    feeds = [random.standard_normal((rows, 3), np.float32) for rows in (1, 3, 2)]
    answers = await asyncio.gather(*(batcher.infer({"x": x, "unused": x}, len(x)) for x in feeds))
    await batcher.drain()
    batcher.close()
    for x, answer in zip(feeds, answers, strict=True):
        assert list(answer) == list(expected(x))
        for name, value in expected(x).items():
            np.testing.assert_array_equal(answer[name], value)


def test_a_weight_may_be_returned(tmp_path: Path) -> None:
    model = instance(lambda x, w: (x, w), tmp_path)
    x = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(model.run({"x": x, "unused": x})["output_1"], np.ones(3))


def test_an_unused_input_stays_in_the_signature(tmp_path: Path) -> None:
    model = instance(lambda x, w: x + w, tmp_path)
    assert [spec.name for spec in model.inputs] == ["x", "unused"]
    with pytest.raises(InvalidArgument, match=r"missing input unused: FP32\[batch, 3\]; given were 'x'"):
        check_inputs(model.inputs, {"x": np.zeros((1, 3), np.float32)})


def test_names_can_be_chosen(tmp_path: Path) -> None:
    kind = TensorType(F32, ["batch", 3], CPU)
    graph = Returns(lambda x, w: (x, x)).trace(kind, kind, input_names=["in", "rest"], output_names=["one", "two"])
    assert [spec.name for spec in (*graph.input_specs, *graph.output_specs)] == ["in", "rest", "one", "two"]
    with pytest.raises(ValueError, match=r"2 outputs need as many different names, not \['one'\]"):
        Returns(lambda x, w: (x, x)).trace(kind, kind, output_names=["one"])
    with pytest.raises(ValueError, match=r"2 inputs need as many different names, not \['same', 'same'\]"):
        Returns(lambda x, w: x).trace(kind, kind, input_names=["same", "same"])


@pytest.mark.parametrize("nothing", [None, [], ()])
def test_what_returns_nothing_can_not_be_bundled(nothing: Any) -> None:
    kind = TensorType(F32, ["batch", 3], CPU)
    with pytest.raises(ValueError, match="graph 'Returns' returns nothing"):
        Returns(lambda x, w: nothing).bundle(kind, kind, weights={})


def test_zeros_that_nobody_loaded_are_not_bundled() -> None:
    kind = TensorType(F32, ["batch", 3], CPU)
    with pytest.raises(ValueError, match="Weight 'one' was not initialized"):
        Returns(lambda x, w: x + w).bundle(kind, kind)


def test_one_input_goes_into_a_subgraph_twice(tmp_path: Path) -> None:
    class Doubled(nn.Module):
        def __call__(self, x: Any) -> Any:
            sub = Added().build_subgraph("added", [x, x])
            return ops.call(sub, x, x)[0]

    class Added(nn.Module):
        def __call__(self, x: Any, y: Any) -> Any:
            return x + y

    stored = Doubled().bundle(TensorType(F32, ["batch", 3], CPU), weights={}).write(tmp_path / "model")
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(Instance.open(stored).run({"x": x})["output"], x * 2)
