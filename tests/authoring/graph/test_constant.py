"""Constants, ranges, external weights, placement hints, and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tidemill.driver import CPU
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, Dim, Graph, TensorType, ops

HOST = DeviceRef.CPU()
GPU = DeviceRef.GPU(1)


def empty(op: Any, check_op: Any, expect: Any) -> None:
    """Check an operator that has no inputs, beside one that the graph must have."""
    check_op(lambda x: op(), np.float32(0), expect=lambda x: expect)


@pytest.mark.parametrize("dtype", [one for one in DType if one is not DType.string])
def test_constants_of_every_dtype(dtype: DType, check_op: Any) -> None:
    array = np.array([[0, 1], [1, 0]]).astype(dtype.to_numpy())
    empty(lambda: ops.constant([[0, 1], [1, 0]], dtype, HOST), check_op, array)
    empty(lambda: ops.constant(array), check_op, array)


@pytest.mark.parametrize("array", [np.float32(3), np.zeros((0, 2)), np.ones((2, 3), order="F"), np.arange(6)[::2]])
def test_constants_of_any_layout(array: Any, check_op: Any) -> None:
    empty(lambda: ops.constant(array), check_op, np.ascontiguousarray(array).reshape(np.shape(array)))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (256, DType.uint8),
        (-1, DType.uint64),
        (0.5, DType.int32),
        (2, DType.bool),
        (70000, DType.float16),
        (1e39, DType.float32),
        ([1, 300], DType.int8),
    ],
)
def test_a_constant_that_does_not_fit(value: Any, dtype: DType) -> None:
    with pytest.raises(ValueError, match="constant"):
        Graph("g", lambda: ops.constant(value, dtype, HOST))


@pytest.mark.parametrize("arguments", [(1,), (1, DType.int32), ([1.5], None, HOST)])
def test_a_literal_needs_dtype_and_device(arguments: Any) -> None:
    with pytest.raises(TypeError, match=r"^Literal constants must explicitly set a dtype and device.$"):
        Graph("g", lambda: ops.constant(*arguments))


@pytest.mark.parametrize(
    ("bounds", "dtype"),
    [
        ((0, 5), DType.int64),
        ((2, 11, 3), DType.int32),
        ((5, 0, -2), DType.int64),
        ((5, 5), DType.int64),
        ((5, 0), DType.int64),
        ((0, 3), DType.float16),
        ((0, 3), DType.uint8),
        ((0.0, 1.0, 0.25), DType.float32),
        ((1.0, 0.0, -0.3), DType.float64),
        ((0, 1, 0.5), DType.float32),
        ((0.5, 0), DType.float32),
    ],
)
def test_ranges(bounds: Any, dtype: DType, check_op: Any) -> None:
    empty(lambda: ops.range(*bounds, dtype=dtype, device=HOST), check_op, np.arange(*bounds).astype(dtype.to_numpy()))


def test_ranges_over_symbols_and_tensors(check_op: Any) -> None:
    check_op(
        lambda x, stop: [
            ops.range(0, x.shape[0]),
            ops.range(Dim("n"), 0, -2),
            ops.range(1, Dim("n") * 2 + 1, 2) * 2,
            ops.range(0, stop, 1, "m") + 1,
            ops.broadcast_to(ops.range(0, stop, out_dim="m", dtype=DType.float32), ["n", "m"]),
        ],
        np.zeros(3, np.float32),
        np.int32(4),
        dims=[("n",), ()],
        expect=[
            np.arange(3),
            np.arange(3, 0, -2),
            np.arange(1, 7, 2) * 2,
            np.arange(4) + 1,
            np.tile(np.arange(4, dtype=np.float32), (3, 1)),
        ],
    )


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (lambda x: ops.range(0, 5, 0), "step must not be 0"),
        (lambda x: ops.range(0.0, 5.0, 0), "step must not be 0"),
        (lambda x: ops.range(0, x), "name it with out_dim="),
        (lambda x: ops.range(0, ops.reshape(x, [1]), out_dim="m"), "takes scalars"),
    ],
)
def test_ranges_that_make_no_sense(op: Any, text: str, trace_op: Any) -> None:
    with pytest.raises(ValueError, match=text):
        trace_op(op, np.int64(3))


def test_an_external_constant_is_a_weight_by_name() -> None:
    held = TensorType(DType.float32, [2])
    graph = Graph(
        "g",
        lambda x: x + ops.constant_external("scale", held) * ops.constant_external("scale", held),
        [held],
    )
    assert list(graph.weight_specs) == ["scale"]
    with pytest.raises(ValueError, match=r"Weight 'scale' is .* can not be"):
        Graph("g", lambda x: [ops.constant_external("scale", t) for t in (held, held.cast(DType.int8))], [held])


def test_an_external_placeholder_takes_the_call_s_prefix() -> None:
    held = TensorType(DType.float32, [2])
    with Graph("g", input_types=[held]) as graph:
        body = graph.add_subgraph("body", lambda x: x + ops.constant_external("b", held, is_placeholder=True), [held])
        graph.output(*ops.call(body, graph.inputs[0], prefix="layers.3."))
    assert list(graph.weight_specs) == ["layers.3.b"]


def test_a_transfer_changes_the_device_and_nothing_else(check_op: Any, trace_op: Any) -> None:
    x = np.ones(2, np.float32)
    check_op(lambda x: ops.transfer_to(x, GPU), x, expect=x)
    assert trace_op(lambda x: ops.transfer_to(x, GPU), x).output_types[0].device == GPU
    assert trace_op(lambda x: ops.transfer_to(ops.transfer_to(x, GPU), CPU()), x).output_types[0].device == HOST


def test_values_on_different_devices_are_named(trace_op: Any) -> None:
    x = np.ones(2, np.float32)
    trace_op(lambda x: (ops.assert_same_device(x, y=x), x)[1], x)
    with pytest.raises(ValueError, match=r"must be on the same device\n +0: .*cpu:0.*\n +moved: .*gpu:1"):
        trace_op(lambda x: ops.assert_same_device(x, moved=ops.transfer_to(x, GPU)), x)


def test_shard_and_stack(check_op: Any) -> None:
    x, y = np.arange(8, dtype=np.float32).reshape(4, 2), np.ones((4, 2), np.float32)
    check_op(
        lambda x, y: ops.shard_and_stack([x, y], [HOST, GPU]),
        x,
        y,
        expect=lambda x, y: [np.stack([x[:2], y[:2]]), np.stack([x[2:], y[2:]])],
    )


def test_side_streams_and_launches_run_their_bodies(check_op: Any, trace_op: Any) -> None:
    held = TensorType(DType.float32, [2])
    x, y = np.ones(2, np.float32), np.full(2, 3, np.float32)
    check_op(
        lambda x, y: [
            *ops.side_stream([x, y], lambda x, y: x + y, result_types=[held]),
            *ops.parallel([[x, y], [y, y]], lambda a, b: a * b, result_types=[[held, held]])[0],
        ],
        x,
        y,
        expect=[x + y, x * y, y * y],
    )
    with pytest.raises(ValueError, match="the body must give"):
        trace_op(lambda x: ops.side_stream([x], lambda x: x > 0, result_types=[held]), x)
    with pytest.raises(NotImplementedError, match="buffers and chain"):
        trace_op(lambda x: ops.parallel([[x]], lambda x: x, buffers=[x], result_types=[[held]]), x)


@pytest.mark.parametrize("value", ["a text", None])
def test_print_says_that_it_does_not(value: str | None, trace_op: Any) -> None:
    with pytest.warns(UserWarning, match=r"ops.print\(h\): .* is not printed when the model runs; make it an output"):
        trace_op(lambda x: (ops.print(x if value is None else value, label="h"), x)[1], np.ones(2, np.float32))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("allgather", lambda: ops.allgather([], [])),
        ("allreduce.sum", lambda: ops.allreduce.sum([], [])),
        ("reducescatter.sum", lambda: ops.reducescatter.sum([], [])),
        ("distributed_broadcast", lambda: ops.distributed_broadcast(1, [])),
        ("distributed_ep.dispatch_bf16", lambda: ops.distributed_ep.dispatch_bf16()),
        ("reduce_scatter_rms_norm", lambda: ops.reduce_scatter_rms_norm([], [], [], 1e-6)),
        ("buffer_create", lambda: ops.buffer_create(None)),
    ],
)
def test_the_refused_say_their_name_and_what_to_do(name: str, call: Any) -> None:
    with pytest.raises(NotImplementedError, match=f"^ops.{name} is refused: a model .*; [a-z]"):
        call()


def test_a_large_bfloat16_is_no_overflow(check_op: Any) -> None:
    empty(lambda: ops.constant([1e38], DType.bfloat16, HOST), check_op, np.array([1e38], ml_dtypes.bfloat16))
