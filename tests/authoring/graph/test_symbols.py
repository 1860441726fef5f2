"""Symbols that only a run shows, arithmetic over them, and what calls of subgraphs make of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tidemill import nn
from tidemill.dtype import DType
from tidemill.engine import InferenceSession
from tidemill.graph import BufferType, Dim, Graph, TensorType, ops

F32 = DType.float32


def run(function: Any, *arrays: np.ndarray[Any, Any], shapes: Any = None) -> list[np.ndarray[Any, Any]]:
    dims = shapes or [array.shape for array in arrays]
    types = [TensorType(DType.from_numpy(array.dtype), shape) for array, shape in zip(arrays, dims, strict=True)]
    model = InferenceSession(num_threads=1).load(Graph("g", function, types))
    return [output.to_numpy() for output in model(*arrays)]


@pytest.mark.parametrize("size", range(1, 9))
def test_floor_division_of_negative_dims_floors(size: int) -> None:
    def sizes(x: Any) -> Any:
        (a,) = x.shape
        return ops.shape_to_tensor([-(-a // 4), (a - 3) // 2 + 1, (a + 3) // 4])

    (result,) = run(sizes, np.zeros(size, np.float32), shapes=[["a"]])
    assert result.tolist() == [-(-size // 4), (size - 3) // 2 + 1, (size + 3) // 4]


def test_a_symbol_that_is_named_twice_is_held_against_itself() -> None:
    def both(x: Any, y: Any) -> Any:
        return ops.nonzero(x, "n"), ops.nonzero(y, "n")

    three, one = np.array([1, 1, 1], np.float32), np.array([0, 1, 0], np.float32)
    first, second = run(both, three, three)
    assert len(first) == len(second) == 3
    with pytest.raises(ValueError, match="Reshape"):
        run(both, three, one)


def test_a_named_slice_is_held_against_what_is_known() -> None:
    def cut(x: Any, y: Any) -> Any:
        return x[(slice(1, None), "n")] + y

    x, y = np.arange(4, dtype=np.float32), np.ones(3, np.float32)
    np.testing.assert_array_equal(run(cut, x, y, shapes=[["m"], ["n"]])[0], [2, 3, 4])
    with pytest.raises(ValueError, match="Reshape"):
        run(cut, x, np.ones(1, np.float32), shapes=[["m"], ["n"]])


def test_each_call_of_a_subgraph_has_sizes_of_its_own() -> None:
    def twice(x: Any, y: Any) -> Any:
        sub = Graph.current.add_subgraph("found", lambda z: ops.nonzero(z, "n"), [TensorType(F32, [3])])
        first, second = ops.call(sub, x)[0], ops.call(sub, y)[0]
        assert first.shape[0] != second.shape[0]
        return first, second, ops.shape_to_tensor([first.shape[0], second.shape[0]])

    _, _, sizes = run(twice, np.array([1, 1, 0], np.float32), np.array([0, 1, 0], np.float32))
    assert sizes.tolist() == [2, 1]


def test_a_subgraph_takes_values_with_arithmetic_dims() -> None:
    class Doubled(nn.Module):
        def __call__(self, x: Any) -> Any:
            return x + x

    class Flat(nn.Module):
        def __call__(self, x: Any) -> Any:
            flat = x.reshape((-1, 4))
            return ops.call(Doubled().build_subgraph("doubled", [flat]), flat)[0]

    graph = Flat().trace(TensorType(F32, ["batch", "seq", 4]))
    assert graph.output_types == [TensorType(F32, [Dim("batch") * "seq", 4])]
    x = np.ones((2, 3, 4), np.float32)
    np.testing.assert_array_equal(InferenceSession(num_threads=1).load(graph)(x)[0].to_numpy(), np.full((6, 4), 2))


def test_a_subgraph_is_called_once_it_has_outputs() -> None:
    with Graph("g", input_types=[TensorType(F32, [2])]) as graph:
        sub = graph.add_subgraph("empty", input_types=[TensorType(F32, [2])])
        with pytest.raises(ValueError, match="subgraph 'empty' has no outputs yet"):
            ops.call(sub, graph.inputs[0])


def test_chains_of_sizes_are_computed_once() -> None:
    def chain(x: Any) -> Any:
        (h,) = x.shape
        sizes = []
        for _ in range(40):
            h = (h - 1) // 2 + 1
            sizes.append(h)
        return [ops.shape_to_tensor([size]) for size in sizes]

    graph = Graph("g", chain, [TensorType(F32, ["h"])])
    assert len(graph.body.prologue) < 5 * 40


def test_a_with_block_within_its_own_goes_on() -> None:
    with Graph("g", input_types=[TensorType(F32, [2])]) as graph:
        with graph:
            pass
        graph.output(graph.inputs[0].tensor + 1)


def test_a_child_that_fails_leaves_no_trace() -> None:
    class Bad(nn.Module):
        def __call__(self, x: Any) -> Any:
            ops.exp(ops.tanh(ops.sin(ops.cos(x))))
            raise RuntimeError("not here")

    class Fallback(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bad = nn.LayerList([Bad(), Bad()])

        def __call__(self, x: Any) -> Any:
            for bad in self.bad:
                try:
                    x = bad(x)
                except RuntimeError:
                    x = x * 2
            return x

    graph = Fallback().trace(TensorType(F32, [2]))
    assert {node.path for node in graph.body.nodes if node.op == "Mul"} == {""}
    result = InferenceSession(num_threads=1).load(graph)(np.ones(2, np.float32))[0].to_numpy()
    np.testing.assert_array_equal(result, 4)


def test_outputs_and_inputs_have_different_names() -> None:
    class Same(nn.Module):
        def __call__(self, hidden: Any) -> Any:
            return {"hidden": hidden + 1}

    class Output(nn.Module):
        def __call__(self, output: Any) -> Any:
            return output + 1

    with pytest.raises(ValueError, match="output 'hidden' has an input's name"):
        Same().trace(TensorType(F32, [2]))
    graph = Output().trace(TensorType(F32, [2]))
    assert [spec.name for spec in graph.output_specs] == ["output_1"]
    np.testing.assert_array_equal(InferenceSession(num_threads=1).load(graph)(np.ones(2, np.float32))[0], 2)
    with pytest.raises(ValueError, match=r"1 inputs need as many different names, not \[''\]"):
        Output().trace(TensorType(F32, [2]), input_names=[""])


def test_what_a_star_takes_is_named_after_it() -> None:
    class Variadic(nn.Module):
        def __call__(self, rest_0: Any, *rest: Any) -> Any:
            return sum(rest, rest_0)

    graph = Variadic().trace(*[TensorType(F32, [2])] * 3)
    assert [spec.name for spec in graph.input_specs] == ["rest_0", "rest_0_1", "rest_1"]


def test_attributes_of_another_kind_keep_bodies_apart() -> None:
    class Leaky(nn.Module):
        def __init__(self, alpha: float) -> None:
            super().__init__()
            self.alpha = alpha

        def __call__(self, x: Any) -> Any:
            return ops.exp(ops.tanh(ops.sin(ops.leaky_relu(x, self.alpha))))

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Leaky(0.0), Leaky(-0.0)

        def __call__(self, x: Any) -> Any:
            return self.second(self.first(x))

    assert Two().trace(TensorType(F32, [2])).functions == {}


def test_saved_nodes_are_those_of_the_flat_graph() -> None:
    class Inner(nn.Module):
        def __call__(self, x: Any) -> Any:
            return ops.exp(ops.tanh(ops.sin(ops.cos(x))))

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Inner(), Inner()

        def __call__(self, x: Any) -> Any:
            return self.b(ops.sqrt(self.a(x)))

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.LayerList([Outer(), Outer(), Outer()])

        def __call__(self, x: Any) -> Any:
            return self.parts(x)

    graph = Root().trace(TensorType(F32, [2]))
    written = 3 + 3 + 4
    assert sum(function.saved for function in graph.functions.values()) == len(graph.body.nodes) - written
    assert graph.function_calls["parts.0.a"] == "Inner"


def test_sizes_are_not_negative() -> None:
    with pytest.raises(ValueError, match=r"TensorType has the shape \[-1, 4\]"):
        TensorType(F32, [-1, 4])
    with pytest.raises(ValueError, match="BufferType has the shape"):
        BufferType(F32, [Dim(-3)])
    assert 4 in {Dim(4)}
    assert "a" in {Dim("a")}


def test_text_constants_may_be_text() -> None:
    def joined(x: Any) -> Any:
        return ops.constant(np.array(["é", b"a"], object), DType.string)

    assert run(joined, np.ones(1, np.float32))[0].tolist() == ["é".encode(), b"a"]
