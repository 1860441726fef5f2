"""One operator, or any function over graph values, traced over given arrays, exported, checked and run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator

from tidemill.dtype import DType
from tidemill.engine.session import SessionOptions, open_session
from tidemill.graph import Dim, Graph, Shape, SymbolicDim, TensorType, TensorValue
from tidemill.graph.check import check_model
from tidemill.graph.export import to_model
from tidemill.protocol import Array

Op = Callable[..., Any]
Dims = Sequence[Sequence[int | str]]

ONE_THREAD = SessionOptions(threads=1)

# Relative and absolute: a kernel may round each step, and float16 ones may compute in float32.
TOLERANCES = {
    DType.float64: (1e-9, 1e-11),
    DType.float32: (2e-5, 2e-6),
    DType.float16: (4e-3, 2e-3),
    DType.bfloat16: (2e-2, 1e-2),
}


def _trace(op: Op, *inputs: Any, dims: Dims | None = None) -> Graph:
    arrays = [np.asarray(array) for array in inputs]
    shapes: Sequence[Sequence[int | str]] = dims if dims is not None else [array.shape for array in arrays]
    types = [TensorType(DType.from_numpy(one.dtype), shape) for one, shape in zip(arrays, shapes, strict=True)]
    return Graph("op", lambda *values: _values(op(*values)), types)


def _values(result: Any) -> list[TensorValue]:
    return list(result) if isinstance(result, list | tuple) else [result]


def _feed(graph: Graph, inputs: Iterable[Any]) -> dict[str, Array]:
    return {spec.name: np.asarray(array) for spec, array in zip(graph.input_specs, inputs, strict=True)}


def _run(model: ModelProto, feed: Mapping[str, Array]) -> list[Array]:
    outputs = open_session(model.SerializeToString(), ONE_THREAD).run(feed)
    return [outputs[info.name] for info in model.graph.output]


def _run_reference(model: ModelProto, feed: Mapping[str, Array]) -> list[Array] | None:
    """What onnx.reference gives, None where it lacks one of the operators."""
    try:
        evaluator = ReferenceEvaluator(model)
    except (NotImplementedError, RuntimeError):
        return None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return [np.asarray(array) for array in evaluator.run(None, dict(feed))]


def _sizes(graph: Graph, inputs: Iterable[Any]) -> dict[str, Dim]:
    """The size that each symbol of the inputs has for these arrays."""
    pairs = zip(graph.input_specs, inputs, strict=True)
    return {
        dim: Dim(size)
        for spec, array in pairs
        for dim, size in zip(spec.shape, np.asarray(array).shape, strict=True)
        if isinstance(dim, str)
    }


def _check_type(inferred: TensorType, sizes: Mapping[str, Dim], array: Array) -> None:
    """The dtype and shape inferred at the call are those that came out; symbols the run made are free."""
    assert DType.from_numpy(array.dtype) is inferred.dtype
    shape = inferred.shape.substitute(sizes)
    free = [isinstance(dim, SymbolicDim) for dim in shape]
    assert len(shape) == array.ndim, f"inferred {inferred}, got shape {array.shape}"
    expected = Shape(size if any_size else dim for any_size, dim, size in zip(free, shape, array.shape, strict=True))
    assert expected == Shape(array.shape), f"inferred {inferred}, got shape {array.shape}"


def _check_values(actual: Array, expected: Array, tolerance: tuple[float, float] | None, source: str) -> None:
    assert actual.shape == expected.shape, f"{source}: shape {actual.shape}, expected {expected.shape}"
    dtype = DType.from_numpy(actual.dtype)
    if not dtype.is_float():
        np.testing.assert_array_equal(actual, expected, err_msg=source)
        return
    relative, absolute = tolerance or TOLERANCES.get(dtype, (0.0, 0.0))
    wide = np.float64 if dtype is DType.float64 else np.float32
    np.testing.assert_allclose(
        actual.astype(wide), expected.astype(wide), relative, absolute, equal_nan=True, err_msg=source
    )


def _check(
    op: Op,
    *inputs: Any,
    expect: Any,
    dims: Dims | None = None,
    tolerance: tuple[float, float] | None = None,
    reference: bool = True,
) -> list[Array]:
    graph = _trace(op, *inputs, dims=dims)
    model = to_model(graph, weights="inputs")
    check_model(model)
    feed = _feed(graph, inputs)
    actual = _run(model, feed)
    with np.errstate(all="ignore"):
        result = expect(*map(np.asarray, inputs)) if callable(expect) else expect
    expected = [np.asarray(one) for one in (result if isinstance(result, list | tuple) else [result])]
    assert len(actual) == len(expected)
    sizes = _sizes(graph, inputs)
    for inferred, array, wanted in zip(graph.output_types, actual, expected, strict=True):
        _check_type(inferred, sizes, array)
        assert array.dtype == wanted.dtype, f"dtype {array.dtype}, expected {wanted.dtype}"
        _check_values(array, wanted, tolerance, "onnxruntime against the oracle")
    second = _run_reference(model, feed) if reference else None
    for array, wanted in zip(second or [], expected, strict=second is not None):
        _check_values(array, wanted, tolerance, "onnx.reference against the oracle")
    return actual


@pytest.fixture(scope="session")
def trace_op() -> Callable[..., Graph]:
    """`trace_op(op, *arrays, dims=None)`: the finished graph of `op` over inputs of the arrays' types.

    `dims` replaces the shape of each input, for symbolic ones: `dims=[("n", 4), ("n",)]`.
    """
    return _trace


@pytest.fixture(scope="session")
def run_op() -> Callable[..., list[Array]]:
    """`run_op(op, *arrays, dims=None)`: what the exported model gives in ONNX Runtime; errors are tidemill's."""

    def run(op: Op, *inputs: Any, dims: Dims | None = None) -> list[Array]:
        graph = _trace(op, *inputs, dims=dims)
        model = to_model(graph, weights="inputs")
        check_model(model)
        return _run(model, _feed(graph, inputs))

    return run


@pytest.fixture(scope="session")
def check_op() -> Callable[..., list[Array]]:
    """`check_op(op, *arrays, expect=..., dims=None, tolerance=None, reference=True)`.

    Traces `op` over inputs of the arrays' types (or `dims`), exports, runs onnx.checker with shape inference, runs
    ONNX Runtime and, where it has the operators, onnx.reference, and compares both with `expect`: arrays, or a numpy
    function over the inputs. The dtype and shape inferred while tracing must be the real ones. Returns what came out.

    `reference=False` leaves onnx.reference out: say why at the call. `tolerance` is (relative, absolute).
    """
    return _check
