"""Operators against max 26.7: what types they give, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seed_modules import Holder, Linear, P, keys
from traced_modules import CPU, F32, Stack, in_graph, out_types, tensor

from tidemill import nn
from tidemill.dtype import DType
from tidemill.engine import InferenceSession
from tidemill.graph import ops


def raised(run: Callable[[], object]) -> str:
    try:
        run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


TYPES: dict[str, Callable[[], list[str]]] = {
    "ops.mean_keepdim": lambda: out_types(ops.mean, tensor("b", 8)),
    "ops.conv2d_layout": lambda: out_types(ops.conv2d, tensor("b", 8, 8, 3), tensor(3, 3, 3, 5)),
    "ops.matmul_vec": lambda: out_types(ops.matmul, tensor("b", 4), tensor(4)),
    "ops.matmul_batched": lambda: out_types(ops.matmul, tensor("b", "h", 4, 5), tensor("b", "h", 5, 6)),
    "ops.matmul_bcast": lambda: out_types(ops.matmul, tensor("b", "h", 4, 5), tensor(5, 6)),
    "ops.compare": lambda: out_types(
        lambda x, y: ((x < y) & (x <= y), (x > y) | (x >= y), x != y, ~(x == y)), tensor(2), tensor(2)
    ),
    "ops.T_rank3": lambda: out_types(lambda x: x.T, tensor(2, 3, 4)),
    "ops.shape_values": lambda: out_types(lambda x: x.reshape((x.shape[0] * 2, 4)), tensor("b", 8)),
}

REFUSALS: dict[str, Callable[[], object]] = {
    "ops.constant_py": lambda: in_graph(lambda graph, x: ops.constant(1.0, device=CPU)),
    "ops.constant_nodevice": lambda: in_graph(lambda graph, x: ops.constant(1.0, F32)),
    "ops.pow": lambda: out_types(lambda x: abs((x**2) + 2**x + -x), tensor(2)),
    "ops.custom_unknown": lambda: out_types(lambda x: ops.custom("nope", CPU, [x], [x.type])[0], tensor(2)),
}


@pytest.mark.parametrize("case", TYPES)
def test_types_are_as_observed(case: str, observed: dict[str, dict[str, Any]]) -> None:
    assert TYPES[case]() == observed[case]["observed"]


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_as_observed(case: str, observed: dict[str, dict[str, Any]]) -> None:
    # Ours goes on where MAX stops.
    assert raised(REFUSALS[case]).startswith(observed[case]["observed"])


def test_a_vector_has_no_axes_to_exchange() -> None:
    """ops.T_rank1: the class and the facts as observed."""
    text = raised(lambda: out_types(lambda x: x.T, tensor(2)))
    assert text.startswith("IndexError")
    assert "out of range (expected to be in range of [-1, 0], but got -2)" in text


def test_extensions_are_libraries_of_onnx_runtime(tmp_path: Path) -> None:
    """ops.custom_ext_bad: refused when the graph is loaded, by what the file is."""
    package = tmp_path / "kernels.mojopkg"
    package.write_bytes(b"mojo")
    module = P()
    with pytest.raises(ValueError, match=r"kernels\.mojopkg"):
        module.compile(tensor(2), session=InferenceSession(num_threads=1), custom_extensions=[package])


def test_weights_of_a_graph_are_those_that_it_uses() -> None:
    """trace.weights_after_state_dict: here in the order of their first use, in MAX in the reverse."""
    stack = Stack()
    stack.state_dict()
    assert list(stack.trace(tensor("b", 4)).weight_specs) == ["layers.0.weight", "layers.1.weight", "layers.2.weight"]


def test_a_registry_may_hold_more_than_is_used() -> None:
    """registry.extra."""
    graph = Stack().trace(tensor("b", 4))
    weights = {f"layers.{place}.weight": np.eye(4, dtype=np.float32) for place in range(9)}
    model = InferenceSession(num_threads=1).load(graph, weights_registry=weights)
    np.testing.assert_array_equal(model(np.ones((1, 4), np.float32))[0].to_numpy(), 1)


def test_a_weight_under_two_names_is_probably_a_mistake() -> None:
    """shared.plain_assign_trace: two keys, and the later name in the graph; with a warning, and one value for both."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = Linear(4, 4), Holder()
            self.head.weight = self.embed.weight

        def __call__(self, x: Any) -> Any:
            return self.embed(x) @ self.head.weight

    model = Tied()
    with pytest.warns(UserWarning, match=r"'embed\.weight' and 'head\.weight' are one Weight .*set_shared_weight"):
        values = model.state_dict()
    with pytest.warns(UserWarning, match="one Weight"):
        assert keys(model) == list(values) == ["embed.weight", "head.weight"]
    assert values["embed.weight"] is values["head.weight"]
    with pytest.warns(UserWarning, match="one Weight"):
        assert list(model.trace(tensor("b", 4)).weight_specs) == ["head.weight"]
    assert model.embed.weight.name == "head.weight"


def test_a_subgraph_returns_something() -> None:
    """subgraph.out_none."""
    with pytest.raises(TypeError, match="not 'NoneType'"):
        in_graph(lambda graph, x: Holder().build_subgraph("s", [[None]]) and None)


def test_dtype_of_an_index() -> None:
    assert out_types(ops.argmax, tensor("b", 8, dtype=DType.float16))[0].startswith("TensorType(dtype=int64")
