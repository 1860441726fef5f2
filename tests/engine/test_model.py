"""Models called from Python, as observed in MAX and better where MAX is wrong."""

from __future__ import annotations

from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

from tidemill.driver import CPU, Buffer
from tidemill.dtype import DType
from tidemill.engine import InferenceSession
from tidemill.errors import UnprocessableInput
from tidemill.protocol.types import TensorSpec

F32 = DType.float32


@pytest.fixture
def add(model_bytes, graph_of):
    content = model_bytes("g (float[batch, 4] a, float[batch, 4] b) => (float[batch, 4] y) { y = Add(a, b) }")
    a, b, y = (TensorSpec(name, F32, ("batch", 4)) for name in "aby")
    return InferenceSession().load(graph_of("add", (a, b), (y,), content))


@pytest.fixture
def model(linear, weight):
    return InferenceSession(num_threads=1).load(linear, weights_registry={"l_weight": weight, "unused": 1})


X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_execute_returns_a_list_of_buffers(model, rows):
    outputs = model.execute(X[:rows])

    assert [type(output) for output in outputs] == [Buffer]
    np.testing.assert_array_equal(outputs[0].to_numpy(), X[:rows])
    assert outputs[0].dtype is F32


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model(X),
        lambda model: model(x=X),
        lambda model: model(input0=X),
        lambda model: model(Buffer.from_numpy(X)),
        lambda model: model(np.asfortranarray(X)),
        lambda model: model(np.repeat(X, 2, axis=1)[:, ::2]),
        lambda model: model(X.astype(">f4")),
        lambda model: model(SimpleDLPack(X)),
    ],
)
def test_ways_to_give_an_input(model, call):
    np.testing.assert_array_equal(call(model)[0].to_numpy(), X)


class SimpleDLPack:
    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (
            [np.zeros((3, 9), np.float32)],
            "Input at position 0: Buffer of type [(3, 9), f32] does not match expected type [(*, 4), f32]",
        ),
        ([np.zeros(4, np.float32)], "Buffer of type [(4), f32] does not match expected type [(*, 4), f32]"),
        ([np.zeros((3, 4))], "Buffer of type [(3, 4), f64] does not match expected type [(*, 4), f32]"),
        ([np.zeros((3, 4), np.int32)], "Buffer of type [(3, 4), si32] does not match"),
        ([np.zeros((3, 4), np.uint8)], "Buffer of type [(3, 4), ui8] does not match"),
        ([np.zeros((3, 4), DType.bfloat16.to_numpy())], "Buffer of type [(3, 4), bf16] does not match"),
        ([np.zeros((3, 4), np.bool_)], "Buffer of type [(3, 4), bool] does not match"),
        ([np.float32(3)], "Buffer of type [(), f32] does not match"),
        ([], "Number of inputs (0) does not match expected number (1) for model"),
        ([X, X], "Number of inputs (2) does not match expected number (1) for model"),
        ([[[1.0]]], "We do not currently support inputs of the type <class 'list'>."),
    ],
)
def test_arguments_that_do_not_fit(model, args, text):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        model.execute(*args)
    assert text in str(caught.value)


@pytest.mark.parametrize("rows", [2, 1])
def test_symbols_must_agree(add, rows):
    with pytest.raises(
        ValueError, match=rf"dimension 'batch' for input 1 does not match prior uses .*: it is {rows} in 'b'"
    ):
        add(X, X[:rows])


@pytest.mark.parametrize(
    "call",
    [lambda add: add(X, b=X), lambda add: add(b=X, a=X), lambda add: add(X, input1=X), lambda add: add(input1=X, a=X)],
)
def test_inputs_by_name(add, call):
    np.testing.assert_array_equal(call(add)[0].to_numpy(), X + X)


@pytest.mark.parametrize("kwargs", [{"a": X}, {"c": X}, {"b": X, "input1": X}])
def test_wrong_names(add, kwargs):
    with pytest.raises(TypeError, match="still to be given: b"):
        add(X, **kwargs)


def test_a_missing_named_input_is_counted(add):
    with pytest.raises(ValueError, match=r"Number of inputs \(1\) does not match expected number \(2\)"):
        add(a=X)


def test_weights_are_aliased(model, weight):
    weight *= 2

    np.testing.assert_array_equal(model(X)[0].to_numpy(), X * 2)


def test_reload_swaps_weights_or_leaves_them(model, weight):
    model.reload({"l_weight": Buffer.from_numpy(weight * 3)})
    np.testing.assert_array_equal(model(X)[0].to_numpy(), X * 3)

    with pytest.raises(ValueError, match="not in the weights registry"):
        model.reload({})
    np.testing.assert_array_equal(model(X)[0].to_numpy(), X * 3)


@pytest.mark.parametrize(
    ("registry", "text"),
    [
        (None, "Weight 'l_weight' is not in the weights registry."),
        ({"l_wieght": 1}, "Weight 'l_weight' is not in the weights registry. Did you mean 'l_wieght'?"),
        (
            {"l_weight": np.zeros((3, 4), np.float32)},
            "has shape [3, 4] and dtype float32, the graph expects shape [4, 4]",
        ),
        ({"l_weight": np.zeros((2, 8), np.float32)}, "has shape [2, 8]"),
        ({"l_weight": np.zeros((4, 4))}, "has shape [4, 4] and dtype float64, the graph expects"),
        ({"l_weight": np.zeros((4, 4), np.int32)}, "dtype int32"),
        ({"l_weight": np.zeros((4, 4), np.float32, order="F").T[::1].T}, "Weight 'l_weight' is not contiguous"),
        ({"l_weight": [[0.0]]}, "weight registry element does not implement dlpack"),
    ],
)
def test_registries_that_do_not_fit(linear, registry, text):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        InferenceSession().load(linear, weights_registry=registry)
    assert text in str(caught.value)


def test_load_all_serves_every_graph_from_one_registry(linear, weight):
    module = SimpleNamespace(graphs={"enc": linear, "dec": linear})

    models = InferenceSession().load_all(module, weights_registry={"l_weight": weight})

    assert list(models) == ["enc", "dec"]
    weight *= 2
    for model in models.values():
        np.testing.assert_array_equal(model(X)[0].to_numpy(), X * 2)
    with pytest.raises(
        ValueError, match=r"setup for model enc returned error: unable to look up weight by name: l_weight"
    ):
        InferenceSession().load_all(module)


def test_metadata(model):
    assert model.name == "enc"
    assert model.devices == (CPU(),)
    assert model.input_metadata == [TensorSpec("x", F32, ("batch", 4))]
    assert model.output_metadata == [TensorSpec("y", F32, ("batch", 4))]
    assert repr(model) == "Model('enc': (x: FP32[batch, 4]) -> (y: FP32[batch, 4]))"


@pytest.mark.parametrize("dtype", [DType.bfloat16, DType.float8_e5m2, DType.string])
def test_types_that_numpy_and_onnxruntime_do_not_share(model_bytes, graph_of, dtype):
    text = {"float8_e5m2": "float8e5m2"}.get(dtype.name, dtype.name)
    content = model_bytes(f"g ({text}[N] x) => ({text}[N] y) {{ y = Identity(x) }}")
    x, y = TensorSpec("x", dtype, ("N",)), TensorSpec("y", dtype, ("N",))
    given = np.array([b"a", b"b"], object) if dtype is DType.string else np.arange(2).astype(dtype.to_numpy())

    (output,) = InferenceSession().load(graph_of("id", (x,), (y,), content))(given)

    assert output.dtype is dtype
    np.testing.assert_array_equal(output.to_numpy(), given)


def test_a_graph_without_outputs_returns_nothing(linear, weight, graph_of):
    silent = graph_of("silent", linear.input_specs, (), linear.content, linear.weight_specs)

    assert InferenceSession().load(silent, weights_registry={"l_weight": weight})(X) == []


def test_values_the_model_refuses(model_bytes, graph_of):
    content = model_bytes("g (int64[N] i) => (float[N] y) <float[2] t = {1, 2}> { y = Gather(t, i) }")
    model = InferenceSession().load(
        graph_of("pick", (TensorSpec("i", DType.int64, ("N",)),), (TensorSpec("y", F32, ("N",)),), content)
    )

    with pytest.raises(UnprocessableInput, match="idx=2"):
        model(np.array([2]))


@pytest.fixture
def counter(model_bytes, graph_of):
    """Adds x to what `total` holds, and returns twice the sum."""
    content = model_bytes(
        "g (float[N] x, float[N] total) => (float[N] y, float[N] total_out) "
        "{ total_out = Add(total, x) y = Add(total_out, total_out) }"
    )
    x, total, y, out = (TensorSpec(name, F32, ("N",)) for name in ("x", "total", "y", "total_out"))
    graph = graph_of("counter", (x, total), (y, out), content, updates=MappingProxyType({"total_out": "total"}))
    return InferenceSession(num_threads=1).load(graph)


ONES = np.ones(3, np.float32)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros(3, np.float32),
        lambda: np.zeros(6, np.float32)[::2],
        lambda: np.zeros(3, ">f4"),
        lambda: Buffer.zeros([3], F32),
        lambda: SimpleDLPack(np.zeros(3, np.float32)),
    ],
    ids=["numpy", "strided", "big-endian", "buffer", "dlpack"],
)
def test_what_a_graph_changes_is_changed_in_place(counter, make):
    total = make()

    for turn in range(1, 4):
        outputs = counter(ONES, total)
        assert [output.to_numpy().tolist() for output in outputs] == [[2.0 * turn] * 3]

    held = total._array if isinstance(total, SimpleDLPack) else np.asarray(total)
    assert held.tolist() == [3.0, 3.0, 3.0]
    assert [spec.name for spec in counter.output_metadata] == ["y"]
    assert [spec.name for spec in counter.input_metadata] == ["x", "total"]


def test_by_name_and_through_an_alias(counter):
    total = np.zeros(3, np.float32)
    counter(x=ONES, total=Buffer.from_numpy(total))

    assert total.tolist() == [1.0, 1.0, 1.0]


def test_what_cannot_be_changed_is_refused_before_the_run(counter):
    total = np.zeros(3, np.float32)
    total.flags.writeable = False

    with pytest.raises(ValueError, match="the graph changes input 'total', and what was passed is read-only"):
        counter(ONES, total)


def test_a_run_that_fails_changes_nothing(counter):
    total = np.zeros(3, np.float32)

    with pytest.raises(ValueError, match="symbolic dimension 'N'"):
        counter(np.ones(4, np.float32), total)
    assert total.tolist() == [0.0, 0.0, 0.0]
