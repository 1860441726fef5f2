"""Where tracing is deliberately better than max 26.7; docs/compatibility.md lists it with the reasons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from traced_modules import CPU, F32, Linear, P, R, Stack, built, in_graph, returned, subgraph_of, tensor

from tidemill import nn, tree
from tidemill.graph import AlgebraicDim, Dim, Graph, Module, TensorType, Weight, ops


def qualified() -> str:
    class Inner(P):
        pass

    return Inner().trace(tensor(1)).name.replace("qualified", "f")


def test_names_are_full_whatever_was_called_before() -> None:
    """trace.weights_before_state_dict, trace.collision_before_state_dict, subgraph.no_state_dict."""
    assert list(Stack().trace(tensor("b", 4)).weight_specs) == [f"layers.{place}.weight" for place in range(3)]


def test_a_module_is_traced_any_number_of_times() -> None:
    """trace.twice, module.same_instance_two_graphs."""
    stack, module = Stack(), Module()
    for name in ("one", "two"):
        stack.trace(tensor("b", 4), name=name, module=module)
    assert module.top_level_graph_names() == ["one", "two"]


def test_a_local_class_keeps_its_qualified_name() -> None:
    """trace.name_qualname."""
    assert qualified() == "f.<locals>.Inner"


def test_a_dict_names_the_outputs() -> None:
    """trace.out_dict."""
    graph = R(lambda x: {"mean": x, "twice": x + x}).trace(tensor(1))
    assert [spec.name for spec in graph.output_specs] == ["mean", "twice"]


def test_a_wrong_input_type_is_named() -> None:
    """trace.bad_input_type."""
    with pytest.raises(TypeError, match="the type of input 'x' must be a TensorType or a BufferType, not \\(1, 2\\)"):
        P().trace((1, 2))  # type: ignore[arg-type]


def test_weights_describe_themselves_outside_of_a_graph() -> None:
    """weight.rank_outside_graph, weight.type_outside_graph."""
    weight = Weight("w", F32, (2, 3), CPU)
    assert (weight.rank, weight.type) == (2, tensor(2, 3))


def test_numpy_sizes_are_dims() -> None:
    """dims.numpy_int."""
    assert TensorType(F32, [np.int64(3)], CPU).shape == [3]


def test_a_value_has_no_truth() -> None:
    """value.bool: MAX is silently true."""
    with pytest.raises(TypeError, match="no truth value"):
        returned(lambda x: x if x > 1 else -x)


def test_graphs_of_one_module_have_different_names() -> None:
    """module.same_graph_name, load_all.same_names."""
    module = Module()
    P().trace(tensor(1), module=module)
    with pytest.raises(ValueError, match="already has a graph 'P'"):
        P().trace(tensor(1), module=module)


def test_subgraphs_of_one_graph_have_different_names() -> None:
    """subgraph.duplicate_name, exec.subgraph_duplicate_name."""

    def run(graph: Graph, x: Any) -> None:
        for _ in range(2):
            subgraph_of(graph, Linear(name="layers.0.weight"), x)

    with pytest.raises(ValueError, match="'g' already has a subgraph 'a'"):
        in_graph(run)


def test_a_subgraph_may_have_its_parents_name() -> None:
    """subgraph.same_name_as_parent: functions and graphs have separate names in ONNX."""

    def run(graph: Graph, x: Any) -> list[Any]:
        return ops.call(subgraph_of(graph, Linear(name="layers.0.weight"), x, name="g"), x, prefix="layers.0.")

    assert len(in_graph(run)) == 1


def test_a_layer_makes_several_subgraphs_and_is_called_besides() -> None:
    """subgraph.same_layer_twice, subgraph.then_direct_call."""

    def run(graph: Graph, x: Any) -> list[str]:
        layer = Linear(name="layers.0.weight")
        first, second = (subgraph_of(graph, layer, x, name=name) for name in ("a", "b"))
        h = ops.call(first, x, prefix="layers.1.")[0]
        graph.output(layer(ops.call(second, h, prefix="layers.2.")[0]))
        return list(graph.weight_specs)

    assert in_graph(run) == ["layers.1.weight", "layers.2.weight", "layers.0.weight"]


def test_an_unknown_prefix_is_an_error_at_the_call() -> None:
    """subgraph.call_without_prefix, subgraph.call_wrong_prefix, exec.subgraph_no_call_prefix."""

    class Wrong(Stack):
        def __call__(self, x: Any) -> Any:
            sub = self.layers[0].build_subgraph("block", [x], weight_prefix="layers.0.")
            return ops.call(sub, x, prefix="layer.1.")[0]

    with pytest.raises(ValueError, match=r"no module has a weight 'layer\.1\.weight'; did you mean 'layers"):
        Wrong().trace(tensor(2, 4))
    with pytest.raises(ValueError, match=r"placeholder weights .* need a prefix"):
        built(lambda sub, x: ops.call(sub, x))


def test_a_prefix_that_no_weight_has_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no weight begins with 'blocks\.'.*the weights are weight"):
        in_graph(lambda graph, x: Linear().build_subgraph("a", [x], weight_prefix="blocks."))


def test_a_weight_of_another_shape_is_an_error_at_the_call() -> None:
    class Uneven(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.LayerList([Linear(4), Linear(5)])

        def __call__(self, x: Any) -> Any:
            sub = self.layers[0].build_subgraph("block", [x], weight_prefix="layers.0.")
            return ops.call(sub, x, prefix="layers.1.")[0]

    with pytest.raises(ValueError, match=r"weight 'layers\.1\.weight' is .*Dim\(5\).*the subgraph takes .*Dim\(4\)"):
        Uneven().trace(tensor(2, 4))


def test_inputs_are_any_sequence_but_not_a_value() -> None:
    """subgraph.in_tuple, subgraph.in_single_value."""
    assert in_graph(lambda graph, x: len(Linear().build_subgraph("a", (x,)).inputs)) == 1
    with pytest.raises(TypeError, match="inputs must be a list with one entry per argument"):
        in_graph(lambda graph, x: Linear().build_subgraph("a", x))


def test_data_among_the_inputs_is_static() -> None:
    """subgraph.in_int, subgraph.in_none, subgraph.in_tree_dataclass, subgraph.no_graph."""

    @tree.dataclass
    class Pair:
        left: Any
        right: Any
        scale: int

    class Scaled(nn.Module):
        def __call__(self, pair: Any, bias: Any) -> Any:
            assert bias is None
            return (pair.left + pair.right) * pair.scale

    def run(graph: Graph, x: Any) -> int:
        sub = Scaled().build_subgraph("s", [Pair(x, x, 3), None])
        return len(ops.call(sub, x, x)) + len(sub.inputs)

    assert in_graph(run) == 3


def test_a_subgraph_takes_other_sizes_for_its_symbols() -> None:
    """call.symbolic_dim_other_name, call.static_into_symbolic."""
    with Graph("g", input_types=[tensor("other", 4), tensor(3, 4)]) as graph:
        first, second = (value.tensor for value in graph.inputs)
        sub = graph.add_subgraph("double", lambda x: x + x, [tensor("batch", 4)])
        results = [ops.call(sub, value)[0] for value in (first, second)]
    assert [list(result.shape) for result in results] == [["other", 4], [3, 4]]


def test_one_symbol_has_one_size_in_a_call() -> None:
    with Graph("g", input_types=[tensor("a", 4), tensor("b", 4)]) as graph:
        sub = graph.add_subgraph("add", lambda x, y: x + y, [tensor("n", 4), tensor("n", 4)])
        with pytest.raises(ValueError, match="wrong type for argument 1"):
            ops.call(sub, graph.inputs[0].tensor, graph.inputs[1].tensor)


def test_algebraic_dims_are_equal_however_they_were_written() -> None:
    a, b = Dim("a"), Dim("b")
    assert (a + 1) * (b + 2) == a * b + a * 2 + b + 2
    assert (a * 6) // 3 == a * 2
    assert isinstance(a * 2, AlgebraicDim)
    assert (a * b) // b is not None
    assert ((a + 3) // 4).substitute({"a": Dim(9)}) == 3
