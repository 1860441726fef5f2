"""Compiled models against max 26.7: feeding, weights, and what is checked when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidemill import nn
from tidemill.driver import Buffer
from tidemill.dtype import DType
from tidemill.engine import InferenceSession, Model
from tidemill.graph import BufferType, DeviceRef, Graph, Module, TensorType, Weight, ops

CPU = DeviceRef.CPU()
F32 = DType.float32


def tensor(*shape: Any, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, shape, CPU)


class Linear(nn.Module):
    def __init__(self, in_dims: int = 4, out_dims: int = 4) -> None:
        super().__init__()
        self.weight = Weight("weight", F32, (in_dims, out_dims), CPU)

    def __call__(self, x: Any) -> Any:
        return x @ self.weight.T


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.gate, self.down = Linear(5, 10), Linear(5, 10), Linear(10, 5)

    def __call__(self, x: Any) -> Any:
        return self.down(ops.silu(self.gate(x)) + self.up(x))


class Net(nn.Module):
    """One layer under the name `l`."""

    def __init__(self) -> None:
        super().__init__()
        self.l = Linear()

    def __call__(self, x: Any) -> Any:
        return self.l(x)


class Stack(nn.Module):
    """One function, called for the layers of `order`."""

    def __init__(self, order: tuple[int, ...] = (0, 1, 2)) -> None:
        super().__init__()
        self.layers = nn.LayerList([Linear() for _ in range(3)])
        self.order = order

    def __call__(self, x: Any) -> Any:
        sub = self.layers[0].build_subgraph("block", [x], weight_prefix="layers.0.")
        for place in self.order:
            x = ops.call(sub, x, prefix=f"layers.{place}.")[0]
        return x


class Nested(nn.Module):
    """A subgraph that calls a subgraph; both with placeholder weights."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.LayerList([nn.LayerList([Linear(), Linear()]) for _ in range(2)])

    def __call__(self, x: Any) -> Any:
        inner = self.blocks[0][0].build_subgraph("inner", [x], weight_prefix="blocks.0.0.")

        def outer(y: Any) -> Any:
            for place in range(2):
                y = ops.call(inner, y, prefix=f"{place}.")[0]
            return y

        block = Graph.current.add_subgraph("outer", outer, [x.type], weight_prefix="blocks.0.")
        for place in range(2):
            x = ops.call(block, x, prefix=f"blocks.{place}.")[0]
        return x


def values(module: nn.Module, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    return {
        name: random.standard_normal([int(dim) for dim in weight.shape], np.float32)
        for name, weight in module.raw_state_dict().items()
    }


@pytest.fixture(scope="module")
def session() -> InferenceSession:
    return InferenceSession(num_threads=1)


@pytest.fixture(scope="module")
def mlp(session: InferenceSession) -> Model:
    return MLP().compile(tensor("batch", 10), session=session)


def described(outputs: list[Buffer]) -> dict[str, Any]:
    return {"type": type(outputs).__name__, "el": type(outputs[0]).__name__, "shape": list(outputs[0].shape)}


def ones(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.ones(shape, dtype)


MLP_CASES: dict[str, Callable[[Model], object]] = {
    "execute.ok": lambda model: described(model.execute(ones(3, 10))),
    "execute.call_dunder": lambda model: [list(output.shape) for output in model(ones(3, 10))],
    "execute.kwarg": lambda model: [list(output.shape) for output in model(input0=ones(3, 10))],
    "execute.wrong_static_dim": lambda model: model.execute(ones(3, 9)),
    "execute.wrong_rank": lambda model: model.execute(ones(10)),
    "execute.wrong_dtype": lambda model: model.execute(ones(3, 10, dtype=np.float64)),
    "execute.wrong_dtype_int": lambda model: model.execute(ones(3, 10, dtype=np.int32)),
    "execute.no_inputs": lambda model: model.execute(),
    "execute.too_many": lambda model: model.execute(ones(3, 10), ones(3, 10)),
    "execute.batch0": lambda model: described(model.execute(ones(0, 10))),
    "execute.batch1": lambda model: described(model.execute(ones(1, 10))),
    "execute.buffer": lambda model: described(model.execute(Buffer.from_numpy(ones(3, 10)))),
}


@pytest.mark.parametrize("case", MLP_CASES)
def test_a_model_is_called_as_observed(case: str, mlp: Model, observed: dict[str, dict[str, Any]]) -> None:
    expected = observed[case]
    if expected["outcome"] == "ok":
        assert MLP_CASES[case](mlp) == expected["observed"]
        return
    with pytest.raises(ValueError) as caught:  # noqa: PT011  (the text is compared below)
        MLP_CASES[case](mlp)
    # Ours goes on where MAX stops: it names the input.
    assert f"{type(caught.value).__name__}: {caught.value}".startswith(expected["observed"])


def test_a_model_describes_itself(mlp: Model) -> None:
    """compile.mlp_warm: its attributes but for kernel_summaries, which ONNX Runtime has no counterpart of."""
    assert (mlp.name, str(mlp.signature)) == ("MLP", "(x)")
    assert [str(spec) for spec in mlp.input_metadata] == ["x: FP32[batch, 10]"]
    assert [str(spec) for spec in mlp.output_metadata] == ["output: FP32[batch, 10]"]
    assert len(mlp.devices) == len(mlp.input_devices) == len(mlp.output_devices) == 1
    mlp.release_captured_graph()
    for refused in (mlp.capture, mlp.replay, mlp.debug_verify_replay):
        with pytest.raises(NotImplementedError, match="does not capture device graphs"):
            refused()


def test_released_weights_come_back_by_reload(session: InferenceSession) -> None:
    module = Net()
    model = module.compile(tensor("b", 4), session=session)
    model.release_weights()
    with pytest.raises(ValueError, match=r"weights of model 'Net' were released"):
        model(ones(1, 4))
    model.reload({"l.weight": np.eye(4, dtype=np.float32)})
    np.testing.assert_array_equal(model(ones(1, 4))[0].to_numpy(), 1)


def test_a_python_list_is_no_tensor(mlp: Model) -> None:
    """execute.python_list."""
    with pytest.raises(ValueError, match="do not currently support inputs of the type <class 'list'>"):
        mlp.execute([[1.0] * 10])


def test_a_model_is_right_for_any_layout(session: InferenceSession) -> None:
    """execute.noncontig, execute.noncontig_value: MAX refuses what is not contiguous."""
    module = MLP()
    weights = values(module)
    module.load_state_dict(weights)
    model = module.compile(tensor("batch", 10), session=session)
    x = np.random.default_rng(1).standard_normal((10, 6), np.float32).T
    gate, up = x @ weights["gate.weight"].T, x @ weights["up.weight"].T
    expected = (gate / (1 + np.exp(-gate)) + up) @ weights["down.weight"].T
    for view in (x, np.ascontiguousarray(x), x[::-1][::-1]):
        np.testing.assert_allclose(model.execute(view)[0].to_numpy(), expected, rtol=1e-4, atol=1e-5)


def test_weights_are_aliased_and_reloaded(session: InferenceSession) -> None:
    """weights.aliasing, model.reload."""
    module = Net()
    weights = values(module)
    model = module.compile(tensor("b", 4), session=session, weights=weights)
    x = ones(2, 4)
    before = model.execute(x)[0].to_numpy().copy()
    weights["l.weight"] *= 2
    np.testing.assert_allclose(model.execute(x)[0].to_numpy(), before * 2, rtol=1e-6)
    model.reload({"l.weight": weights["l.weight"] * np.float32(1.5)})
    np.testing.assert_allclose(model.execute(x)[0].to_numpy(), before * 3, rtol=1e-6)


def test_a_fresh_module_compiles(session: InferenceSession) -> None:
    """compile.fresh_default, registry.full_names_without_state_dict."""
    np.testing.assert_array_equal(Net().compile(tensor("b", 4), session=session)(ones(1, 4))[0].to_numpy(), 0)
    model = Net().compile(tensor("b", 4), session=session, weights={"l.weight": np.eye(4, dtype=np.float32)})
    np.testing.assert_array_equal(model(ones(1, 4))[0].to_numpy(), 1)


class Pair(nn.Module):
    def __call__(self, x: Any, y: Any) -> Any:
        return x + y


@pytest.mark.parametrize("rows", [2, 1])
def test_equal_symbols_must_agree(rows: int, session: InferenceSession) -> None:
    """exec.symbol_mismatch, exec.symbol_mismatch_1, exec.symbol_ok: ONNX Runtime would broadcast."""
    model = Pair().compile(tensor("batch", 4), tensor("batch", 4), session=session)
    assert list(model.execute(ones(3, 4), ones(3, 4))[0].shape) == [3, 4]
    with pytest.raises(ValueError, match=f"'batch'.*it is {rows} in 'y' and 3 in 'x'"):
        model.execute(ones(3, 4), ones(rows, 4))


def test_a_rebind_is_checked_when_it_runs(session: InferenceSession) -> None:
    """exec.rebind_fail, exec.rebind_ok."""

    class Rebound(nn.Module):
        def __call__(self, x: Any) -> Any:
            return x.rebind([8, 4]) + 1

    model = Rebound().compile(tensor("batch", 4), session=session)
    assert list(model.execute(ones(8, 4))[0].shape) == [8, 4]
    with pytest.raises(ValueError, match="Reshape"):
        model.execute(ones(3, 4))


def test_unused_inputs_must_be_given(session: InferenceSession, observed: dict[str, dict[str, Any]]) -> None:
    """exec.unused_input_missing."""

    class First(nn.Module):
        def __call__(self, x: Any, unused: Any) -> Any:
            return x + 1

    model = First().compile(tensor("b"), tensor("b"), session=session)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        model.execute(ones(1))
    assert f"ValueError: {caught.value}" == observed["exec.unused_input_missing"]["observed"]


def test_an_input_that_is_returned_is_a_copy(session: InferenceSession) -> None:
    """exec.output_is_input, B25: MAX hands out the caller's memory."""

    class Through(nn.Module):
        def __call__(self, x: Any) -> Any:
            y = x + 1
            return x, y, x, y

    x = ones(2, 3)
    outputs = [output.to_numpy() for output in Through().compile(tensor("b", 3), session=session).execute(x)]
    for output, expected in zip(outputs, (x, x + 1, x, x + 1), strict=True):
        np.testing.assert_array_equal(output, expected)
        assert not np.shares_memory(output, x)


def test_a_tied_weight_needs_one_key(session: InferenceSession) -> None:
    """exec.shared_weight."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = Linear(), Linear()
            self.head.set_shared_weight("weight", self.embed.weight)

        def __call__(self, x: Any) -> Any:
            return self.head(self.embed(x))

    weights = {"embed.weight": np.full((4, 4), 0.5, np.float32)}
    np.testing.assert_allclose(Tied().compile(tensor("b", 4), session=session, weights=weights)(ones(1, 4))[0], 4.0)


def test_several_graphs_share_one_registry(session: InferenceSession) -> None:
    """load_all.many, module.two_graphs."""
    module, net = Module(), Net()
    net.trace(tensor("b", 4), name="enc", module=module)
    net.trace(tensor("b", "s", 4), name="dec", module=module)
    models = session.load_all(module, weights_registry={"l.weight": np.eye(4, dtype=np.float32), "extra": ones(1)})
    assert list(models) == ["enc", "dec"]
    np.testing.assert_array_equal(models["dec"](ones(1, 2, 4))[0].to_numpy(), 1)


REGISTRIES: dict[str, Any] = {
    "registry.missing": {},
    "registry.typo": {"l.wieght": ones(4, 4)},
    "registry.empty": None,
    "registry.noncontig": {"l.weight": np.asfortranarray(ones(4, 4) * np.arange(4, dtype=np.float32))},
    "registry.list": {"l.weight": [[1.0] * 4] * 4},
}


@pytest.mark.parametrize("case", REGISTRIES)
def test_a_registry_is_refused_as_observed(
    case: str, session: InferenceSession, observed: dict[str, dict[str, Any]]
) -> None:
    module = Module()
    Net().trace(tensor("b", 4), name="enc", module=module)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        session.load_all(module, weights_registry=REGISTRIES[case])
    # Ours goes on where MAX stops: with a suggestion, or the way out.
    assert f"ValueError: {caught.value}".startswith(observed[case]["observed"].split(": Max does not")[0])


@pytest.mark.parametrize(
    ("case", "value", "text"),
    [
        ("registry.wrong_shape", ones(3, 4), "shape"),
        ("registry.wrong_shape_same_size", ones(2, 8), "shape"),
        ("registry.wrong_dtype", ones(4, 4, dtype=np.float64), "float64"),
        ("registry.wrong_dtype_same_size", ones(4, 4, dtype=np.int32), "int32"),
    ],
)
def test_a_wrong_registry_value_is_refused(case: str, value: Any, text: str, session: InferenceSession) -> None:
    """MAX accepts these without an error and reads beyond the array (also registry.shape_unchecked)."""
    with pytest.raises(ValueError, match=rf"l\.weight.*{text}"):
        session.load(Net().trace(tensor("b", 4)), weights_registry={"l.weight": value})


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0)])
def test_prefixes_choose_the_weights(order: tuple[int, ...], session: InferenceSession) -> None:
    """exec.subgraph_prefixes, exec.subgraph_subset, subgraph.seed, subgraph.layerlist."""
    module = Stack(order)
    weights = values(module)
    graph = module.trace(tensor("batch", 4))
    x = expected = np.random.default_rng(1).standard_normal((3, 4), np.float32)
    for place in order:
        expected = expected @ weights[f"layers.{place}.weight"].T
    np.testing.assert_allclose(session.load(graph, weights_registry=weights)(x)[0], expected, rtol=1e-4)
    assert {name: (function.calls, function.nodes) for name, function in graph.functions.items()} == {
        "block": (len(order), 1)
    }


def test_a_subgraph_without_a_prefix_keeps_its_weights(session: InferenceSession) -> None:
    """subgraph.no_prefix: both calls use the same weight."""
    layer = Linear()
    with Graph("g", input_types=[tensor(2, 4)]) as graph:
        x = graph.inputs[0].tensor
        sub = layer.build_subgraph("block", [x])
        for _ in range(2):
            x = ops.call(sub, x)[0]
        graph.output(x)
    weight = values(layer)["weight"]
    np.testing.assert_allclose(
        session.load(graph, weights_registry={"weight": weight})(ones(2, 4))[0], ones(2, 4) @ weight.T @ weight.T, 1e-4
    )


def test_nested_prefixes_add_up(session: InferenceSession) -> None:
    """exec.nested_subgraph, subgraph.nested: MAX crashes; here the name is outer prefix + inner prefix + local name."""
    module = Nested()
    weights = values(module)
    graph = module.trace(tensor("batch", 4))
    x = expected = np.random.default_rng(1).standard_normal((3, 4), np.float32)
    for name in ("blocks.0.0", "blocks.0.1", "blocks.1.0", "blocks.1.1"):
        expected = expected @ weights[f"{name}.weight"].T
    np.testing.assert_allclose(session.load(graph, weights_registry=weights)(x)[0], expected, rtol=1e-4)
    assert {name: function.calls for name, function in graph.functions.items()} == {"inner": 2, "outer": 2}


def test_add_subgraph_is_called_like_a_function(session: InferenceSession) -> None:
    """add_subgraph.basic."""
    with Graph("main", input_types=[tensor(10)]) as graph:
        sub = graph.add_subgraph("add_one", lambda x: x + 1, [tensor(10)])
        graph.output(ops.call(sub, graph.inputs[0])[0])
    np.testing.assert_array_equal(session.load(graph)(ones(10))[0].to_numpy(), 2)


def test_a_buffer_is_changed_in_place(session: InferenceSession) -> None:
    class Counter(nn.Module):
        def __call__(self, x: Any, state: Any) -> Any:
            state[...] = state[...] + x
            state[0] = 7.0
            return state[...] * 2

    graph = Counter().trace(tensor(3), BufferType(F32, [3], CPU))
    assert graph.updates == {"state.out": "state"}
    model, state = session.load(graph), np.zeros(3, np.float32)
    for turn in (1, 2):
        (doubled,) = model(ones(3), state)
        np.testing.assert_array_equal(state, [7, turn, turn])
        np.testing.assert_array_equal(doubled.to_numpy(), state * 2)
