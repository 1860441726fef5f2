"""Sessions take and give every dtype and explain what goes wrong."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tidemill.dtype import DType
from tidemill.engine.runtime import warn_of_conflicts
from tidemill.engine.session import SessionOptions, open_session
from tidemill.errors import InferenceFailed, InvalidArgument, LoadFailed, UnprocessableInput
from tidemill.protocol.types import TensorSpec

GATHER = "g (int64[N] i) => (float[N] y) <float[4] t = {10, 11, 12, 13}> { [pick] y = Gather(t, i) }"
ADD_ONE = "g (float[N, 2] x) => (float[N, 2] y) <float one = {1}> { y = Add(x, one) }"

TYPES = [dtype for dtype in DType if dtype is not DType.string]
ONNX_TEXT = {"float32": "float", "float64": "double", "float8_e4m3fn": "float8e4m3fn", "float8_e5m2": "float8e5m2"}
ONNX_TEXT |= {"float8_e4m3fnuz": "float8e4m3fnuz", "float8_e5m2fnuz": "float8e5m2fnuz"}


def identity(dtype):
    text = ONNX_TEXT.get(dtype.name, dtype.name)
    return f"g ({text}[N, 3] x) => ({text}[N, 3] y) {{ y = Identity(x) }}"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("rows", [0, 2])
def test_every_dtype_passes_unchanged(session, dtype, rows):
    runner = session(identity(dtype))
    x = np.arange(rows * 3).reshape(rows, 3).astype(dtype.to_numpy())

    y = runner.run({"x": x})["y"]

    assert runner.inputs == (TensorSpec("x", dtype, ("N", 3)),)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x)


def test_strings_pass_as_bytes(session):
    runner = session("g (string[N, M] x) => (string[N, M] y) { y = Identity(x) }")
    x = np.array([[b"a\0b", b""], ["é".encode(), b"z"]], object)

    y = runner.run({"x": x})["y"]

    assert y.tolist() == x.tolist()
    assert runner.run({"x": np.empty((0, 2), object)})["y"].shape == (0, 2)
    with pytest.raises(InvalidArgument, match="input 'x' has an element that is not UTF-8"):
        runner.run({"x": np.array([[b"\xff"]], object)})


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x,
        lambda x: x.astype(">f4"),
        np.asfortranarray,
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: np.frombuffer(b"?" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape),
    ],
    ids=["plain", "big-endian", "fortran", "strided", "unaligned"],
)
def test_any_memory_layout_is_right(session, change):
    x = np.arange(6, dtype=np.float32).reshape(3, 2)

    np.testing.assert_array_equal(session(ADD_ONE).run({"x": change(x)})["y"], x + 1)


def test_outputs_of_all_kinds_outlive_their_run(session):
    runner = session(
        "g (float[N] x, bfloat16[N] b, string[N] s) => (float[N] y, float[N] z) { y = Neg(x) z = Cast<to=1>(b) }"
    )
    mixed = session("g (float[N] x, bfloat16[N] b) => (float[N] y, bfloat16[N] c) { y = Neg(x) c = Identity(b) }")
    x = np.arange(1000, dtype=np.float32)
    b = x.astype(DType.bfloat16.to_numpy())

    outputs = [mixed.run({"x": x + n, "b": b}) for n in range(20)]
    native = runner.run({"x": x, "b": b, "s": np.full(1000, b"s", object)})

    np.testing.assert_array_equal(native["z"], b.astype(np.float32))
    for n, output in enumerate(outputs):
        np.testing.assert_array_equal(output["y"], -(x + n))
        np.testing.assert_array_equal(output["c"], b)


def test_bytes_in_and_narrow_floats_out_cannot_be_served(session):
    with pytest.raises(LoadFailed, match="BYTES inputs and BF16 or FP8 outputs"):
        session("g (string[N] s, bfloat16[N] b) => (bfloat16[N] c) { c = Identity(b) }")


def test_shapes_are_described(session):
    runner = session("g (float x, int32[N, ?, 3] z) => (float y) { y = Neg(x) }")

    assert runner.inputs == (TensorSpec("x", DType.float32, ()), TensorSpec("z", DType.int32, ("N", "", 3)))
    assert runner.providers == ("CPUExecutionProvider",)


def test_values_that_a_kernel_refuses_are_the_callers_fault(session, capfd):
    with pytest.raises(
        UnprocessableInput, match=r"^Gather node 'pick' cannot compute .*idx=4 must be within .*\[-4,3\]"
    ):
        session(GATHER).run({"i": np.array([1, 4])})
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("graph", "feed", "text"),
    [
        (
            "g (int32[N] a, int32[N] b) => (int32[N] y) { [div] y = Div(a, b) }",
            {"a": np.ones(1, np.int32), "b": np.zeros(1, np.int32)},
            "Div node 'div' cannot compute with these values: Integer division by zero",
        ),
        (
            "g (float[N] a, int64[2] s) => (float[A, B] y) { [rs] y = Reshape(a, s) }",
            {"a": np.ones(6, np.float32), "s": np.array([4, 2])},
            "Reshape node 'rs' cannot compute with these values: The input tensor cannot be reshaped to the requested "
            "shape. Input shape:{6}, requested shape:{4,2}",
        ),
        (
            "g (float[N, K] a, float[J, M] b) => (float[N, M] y) { [mm] y = MatMul(a, b) }",
            {"a": np.ones((2, 3), np.float32), "b": np.ones((2, 3), np.float32)},
            "MatMul node 'mm' cannot compute with these values: MatMul dimension mismatch",
        ),
    ],
)
def test_kernel_errors_are_cleaned_of_source_paths(session, graph, feed, text):
    with pytest.raises(UnprocessableInput) as caught:
        session(graph).run(feed)
    assert str(caught.value) == text


def test_running_out_of_memory_is_not_the_callers_fault(session):
    runner = session("g (int64[2] s) => (float[A, B] y) { y = ConstantOfShape(s) }")

    with pytest.raises(InferenceFailed, match="Failed to allocate memory"):
        runner.run({"s": np.array([1 << 40, 1 << 10])})


@pytest.mark.parametrize(
    ("feed", "error"),
    [
        ({"i": np.zeros(1, np.float32)}, InvalidArgument),
        ({"i": np.zeros((1, 1), np.int64)}, InvalidArgument),
        ({}, InferenceFailed),
    ],
)
def test_unchecked_feeds_raise_our_errors(session, feed, error):
    with pytest.raises(error, match="the model could not be run"):
        session(GATHER).run(feed)


def test_one_session_serves_many_threads(session):
    runner = session(ADD_ONE)
    inputs = [np.full((n % 7, 2), n, np.float32) for n in range(200)]

    with ThreadPoolExecutor(8) as threads:
        outputs = list(threads.map(lambda x: runner.run({"x": x})["y"], inputs))

    assert all(np.array_equal(y, x + 1) for x, y in zip(inputs, outputs, strict=True))


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (b"not a model", "cannot load the model"),
        (Path("/nowhere/model.onnx"), "cannot load /nowhere/model.onnx"),
    ],
)
def test_what_cannot_be_loaded_is_named(model, text):
    with pytest.raises(LoadFailed, match=text):
        open_session(model, SessionOptions())


def test_a_provider_that_is_not_there_fails_the_load(model_bytes):
    with pytest.raises(LoadFailed, match=r"CUDAExecutionProvider.*tidemill\[gpu\]"):
        open_session(model_bytes(ADD_ONE), SessionOptions(providers=("CUDAExecutionProvider",)))


def test_the_remains_of_two_wheels_are_recognised(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", ModuleType("onnxruntime"))

    with pytest.raises(LoadFailed, match="empty shell"):
        open_session(b"", SessionOptions())


def test_two_wheels_at_once_are_warned_of(monkeypatch, tmp_path):
    for wheel in ("onnxruntime", "onnxruntime_gpu"):
        (tmp_path / f"{wheel}-1.0.dist-info").mkdir()
        (tmp_path / f"{wheel}-1.0.dist-info" / "METADATA").write_text(f"Name: {wheel}\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.warns(RuntimeWarning, match="onnxruntime and onnxruntime-gpu are both installed"):
        warn_of_conflicts()


def test_without_onnxruntime_the_command_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)

    with pytest.raises(LoadFailed, match=r"pip install 'tidemill\[cpu\]'"):
        open_session(b"", SessionOptions())
