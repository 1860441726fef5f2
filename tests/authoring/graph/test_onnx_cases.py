"""ONNX's own test cases of the operators that we emit, rebuilt with ours and compared with the data of the case.

`REBUILT` says how a node becomes a call: given its attributes and inputs it returns the call and the arrays that stay
tensors, or None for what our operator does not mean (another axis handling, truncation, strings, 4-bit integers).
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case import node as node_cases

from tidemill.dtype import DType
from tidemill.graph import ops

Attributes = Mapping[str, Any]
Inputs = Sequence[Any]
Rebuilt = tuple[Callable[..., Any], Inputs] | None
Rebuild = Callable[[Attributes, Inputs], Rebuilt]


def same(op: Callable[..., Any]) -> Rebuild:
    """All inputs are tensors, and there is no attribute."""
    return lambda a, xs: None if a else (op, xs)


def with_axis(op: Callable[..., Any], default: int = -1) -> Rebuild:
    return lambda a, xs: (lambda x: op(x, a.get("axis", default)), xs)


def alike(op: Callable[..., Any]) -> Rebuild:
    """Two tensors of one dtype."""
    return lambda a, xs: (op, xs) if len(xs) == 2 and xs[0].dtype == xs[1].dtype else None


def reduce(op: Callable[..., Any]) -> Rebuild:
    """One axis, which stays."""

    def build(a: Attributes, xs: Inputs) -> Rebuilt:
        axes = xs[1] if len(xs) > 1 else a.get("axes")
        if axes is None or np.size(axes) != 1 or not a.get("keepdims", 1) or xs[0].dtype == bool:
            return None
        empty = not xs[0].shape[int(np.ravel(axes)[0])]
        return None if empty and op in (ops.max, ops.min) else (lambda x: op(x, axis=int(np.ravel(axes)[0])), xs[:1])

    return build


def index(op: Callable[..., Any]) -> Rebuild:
    kept = lambda a: a.get("keepdims", 1) and not a.get("select_last_index", 0)  # noqa: E731
    return lambda a, xs: (lambda x: op(x, a.get("axis", 0)), xs) if kept(a) else None


def floats(op: Callable[..., Any]) -> Rebuild:
    return lambda a, xs: (op, xs) if all(x.dtype.kind == "f" for x in xs) else None


def mod(a: Attributes, xs: Inputs) -> Rebuilt:
    return None if a.get("fmod") else (ops.mod, xs)


def top_k(a: Attributes, xs: Inputs) -> Rebuilt:
    if xs[0].dtype == np.uint64:
        return None
    op = ops.top_k if a.get("largest", 1) else ops.bottom_k
    return lambda x: op(x, int(xs[1][0]), a.get("axis", -1)), xs[:1]


def running(op: Callable[..., Any]) -> Rebuild:
    flags = lambda a: (bool(a.get("exclusive", 0)), bool(a.get("reverse", 0)))  # noqa: E731
    return lambda a, xs: (lambda x: op(x, int(np.ravel(xs[1])[0]), *flags(a)), xs[:1])


def trilu(a: Attributes, xs: Inputs) -> Rebuilt:
    k = int(np.ravel(xs[1])[0]) if len(xs) > 1 else 0
    rows, columns = xs[0].shape[-2:]
    lower, upper = (-k, None) if a.get("upper", 1) else (None, k)
    fits = all(width is None or 0 <= width < size for width, size in ((lower, rows), (upper, columns)))
    return (lambda x: ops.band_part(x, lower, upper), xs[:1]) if fits else None


def scatter(prefix: str) -> Rebuild:
    def build(a: Attributes, xs: Inputs) -> Rebuilt:
        reduction = a.get("reduction", "none")
        op = getattr(ops, prefix if reduction == "none" else f"{prefix}_{reduction}")
        axis = [a.get("axis", 0)] if prefix == "scatter" else []
        return lambda x, i, u: op(x, u, i, *axis), xs

    return build


def slices(a: Attributes, xs: Inputs) -> Rebuilt:
    starts, ends, axes, steps = [*xs[1:], None, None][:4]
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    cuts = [slice(None)] * xs[0].ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        # A stop so far below zero is ONNX's word for "to the first element".
        cuts[axis] = slice(int(start), None if step < 0 and end < -1000 else int(end), int(step))
    return lambda x: x[tuple(cuts)], xs[:1]


def split(a: Attributes, xs: Inputs) -> Rebuilt:
    return (lambda x: ops.split(x, xs[1].tolist(), a.get("axis", 0)), xs[:1]) if len(xs) > 1 else None


def transpose(a: Attributes, xs: Inputs) -> Rebuilt:
    return lambda x: ops.permute(x, a.get("perm", range(xs[0].ndim)[::-1])), xs


def reshape(a: Attributes, xs: Inputs) -> Rebuilt:
    sizes = xs[1].tolist()
    if not a.get("allowzero"):
        sizes = [xs[0].shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    return lambda x: x.reshape(sizes), xs[:1]


def one_axis(op: Callable[..., Any]) -> Rebuild:
    return lambda a, xs: (lambda x: op(x, int(xs[1][0])), xs[:1]) if len(xs) > 1 and len(xs[1]) == 1 else None


def expand(a: Attributes, xs: Inputs) -> Rebuilt:
    shape = np.broadcast_shapes(xs[0].shape, tuple(xs[1]))
    return lambda x: ops.broadcast_to(x, shape), xs[:1]


def pad(a: Attributes, xs: Inputs) -> Rebuilt:
    mode = a.get("mode", "constant")
    if len(xs) > 3 or mode == "wrap" or (xs[1] < 0).any():
        return None
    paddings = np.stack(np.split(xs[1], 2), 1).ravel().tolist()
    fill = [xs[2]] if len(xs) > 2 else []
    return lambda x, *v: ops.pad(x, paddings, mode, *v), [xs[0], *fill]


def one_hot(a: Attributes, xs: Inputs) -> Rebuilt:
    indices, depth, values = xs
    if (indices < 0).any():
        return None
    hot = lambda i: ops.one_hot(i, int(np.ravel(depth)[0]), a.get("axis", -1), DType.bool)  # noqa: E731
    return lambda i, v: ops.where(hot(ops.cast(i, DType.int64)), v[1], v[0]), [indices, values]


def cast(a: Attributes, xs: Inputs) -> Rebuilt:
    known = {dtype.onnx: dtype for dtype in DType if dtype is not DType.string}
    # float8 saturates in ONNX and in ONNX Runtime, which the case's data follow only in part.
    if a["to"] not in known or "float8" in known[a["to"]].name:
        return None
    return lambda x: ops.cast(x, known[a["to"]]), xs


def gemm(a: Attributes, xs: Inputs) -> Rebuilt:
    plain = a.get("transB") and not a.get("transA") and a.get("alpha", 1) == a.get("beta", 1) == 1
    return (ops.linear, xs) if plain and (len(xs) < 3 or xs[2].ndim == 1) else None


def last_axis(op: Callable[..., Any], default: float) -> Rebuild:
    def build(a: Attributes, xs: Inputs) -> Rebuilt:
        if a.get("axis", -1) not in (-1, xs[0].ndim - 1):
            return None
        return lambda x, w, *b: op(x, w, *b, a.get("epsilon", default)), xs

    return build


def clip(a: Attributes, xs: Inputs) -> Rebuilt:
    low, high = [*xs[1:], None, None][:2]
    bounds = [bound for bound in (low, high) if bound is not None]
    return lambda x, *b: ops.clip(x, b[0] if low is not None else None, b[-1] if high is not None else None), [
        xs[0],
        *bounds,
    ]


# Operators that take tensors only; ours has the same name in lower case, or the one given.
LOWERED = (
    "Abs Acos Acosh Add Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor Log MatMul Mish Mul PRelu Reciprocal Relu "
    "Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Tan Tanh Where"
)
RENAMED = {
    "And": "logical_and",
    "BitwiseAnd": "bitwise_and",
    "BitwiseNot": "bitwise_not",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "HardSwish": "hard_swish",
    "IsInf": "is_inf",
    "IsNaN": "is_nan",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Neg": "negate",
    "Not": "logical_not",
    "Or": "logical_or",
    "Xor": "logical_xor",
}

REBUILT: dict[str, Rebuild] = {
    **{name: same(getattr(ops, name.lower())) for name in LOWERED.split()},
    **{name: same(getattr(ops, op)) for name, op in RENAMED.items()},
    **{name: reduce(getattr(ops, name[6:].lower())) for name in ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax")},
    "ReduceMin": reduce(ops.min),
    "ReduceLogSumExp": reduce(ops.logsumexp),
    "ArgMax": index(ops.argmax),
    "ArgMin": index(ops.argmin),
    "Max": alike(ops.max),
    "Min": alike(ops.min),
    "Pow": alike(ops.pow),
    "Div": floats(ops.div),
    "Mod": mod,
    "Clip": clip,
    "Softmax": with_axis(ops.softmax),
    "LogSoftmax": with_axis(ops.logsoftmax),
    "Elu": lambda a, xs: (lambda x: ops.elu(x, a.get("alpha", 1.0)), xs),
    "LeakyRelu": lambda a, xs: (lambda x: ops.leaky_relu(x, a.get("alpha", 0.01)), xs),
    "Gelu": lambda a, xs: (lambda x: ops.gelu(x, a.get("approximate", "none")), xs),
    "Swish": lambda a, xs: (ops.silu, xs) if a.get("alpha", 1) == 1 else None,
    "TopK": top_k,
    "CumSum": running(ops.cumsum),
    "CumProd": running(ops.cumprod),
    "Trilu": trilu,
    "Gather": lambda a, xs: (lambda x, i: ops.gather(x, i, a.get("axis", 0)), xs),
    "GatherND": lambda a, xs: (lambda x, i: ops.gather_nd(x, i, a.get("batch_dims", 0)), xs),
    "ScatterElements": scatter("scatter"),
    "ScatterND": scatter("scatter_nd"),
    "Slice": slices,
    "Split": split,
    "Concat": lambda a, xs: (lambda *x: ops.concat(x, a["axis"]), xs),
    "Transpose": transpose,
    "Reshape": reshape,
    "Squeeze": one_axis(ops.squeeze),
    "Unsqueeze": one_axis(ops.unsqueeze),
    "Expand": expand,
    "Tile": lambda a, xs: (lambda x: ops.tile(x, xs[1].tolist()), xs[:1]),
    "Pad": pad,
    "OneHot": one_hot,
    "Range": lambda a, xs: (lambda *x: ops.range(*x, "n", dtype=DType.from_numpy(xs[0].dtype)), xs),
    "NonZero": lambda a, xs: (lambda x: ops.permute(ops.nonzero(x, "n"), [1, 0]), xs),
    "Einsum": lambda a, xs: (lambda *x: ops.einsum(a["equation"], *x), xs) if "..." not in a["equation"] else None,
    "Cast": cast,
    "Gemm": gemm,
    "LayerNormalization": last_axis(
        lambda x, w, *rest: ops.layer_norm(x, w, rest[0] if rest[1:] else None, rest[-1]), 1e-5
    ),
    "RMSNormalization": last_axis(ops.rms_norm, 1e-5),
}


@cache
def cases() -> dict[str, list[Any]]:
    """The one-node cases of the operators in the table; importing a case's module makes it."""
    folder = Path(next(iter(node_cases.__path__)))
    wanted = {name.lower() for name in REBUILT}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for path in sorted(folder.glob("*.py")):
            if path.stem.replace("_", "") in wanted:
                importlib.import_module(f"{node_cases.__name__}.{path.stem}")
    found: dict[str, list[Any]] = {name: [] for name in REBUILT}
    for case in node_cases._NodeTestCases:
        if len(case.model.graph.node) == 1 and case.model.graph.node[0].op_type in found and case.data_sets:
            found[case.model.graph.node[0].op_type].append(case)
    return found


def rebuilt(case: Any) -> Iterator[tuple[Callable[..., Any], Inputs, Sequence[Any]]]:
    """The call, its arrays and the expected outputs of each data set that our operator can express."""
    node = case.model.graph.node[0]
    attributes = {one.name: _text(helper.get_attribute_value(one)) for one in node.attribute}
    for inputs, outputs in case.data_sets:
        given = iter(map(_array, inputs))
        arrays = [next(given) if name else None for name in node.input]
        results = list(map(_array, outputs))
        if not all(array is None or _is_known(array) for array in [*arrays, *results]) or len(results) > 2:
            continue
        call = REBUILT[node.op_type](attributes, arrays)
        if call is not None:
            yield *call, results


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _array(value: Any) -> Any:
    """Dtypes that numpy does not have lie in the cases as ONNX tensors."""
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def _is_known(array: Any) -> bool:
    try:
        return DType.from_numpy(array.dtype) is not DType.string
    except (TypeError, AttributeError):
        return False


def is_computed(case: Any, arrays: Inputs) -> bool:
    """bfloat16 waits for an accelerator, and float8 is there to store."""
    names = {array.dtype.name for array in arrays}
    return case.model.graph.node[0].op_type in ("Cast", "Reshape", "Transpose") or not names & {"bfloat16"}


@pytest.mark.parametrize("name", REBUILT)
def test_cases_of_onnx(name: str, check_op: Any) -> None:
    for case in cases()[name]:
        for op, arrays, outputs in rebuilt(case):
            if is_computed(case, arrays):
                tolerance = (max(case.rtol or 0, 1e-3), max(case.atol or 0, 1e-5))
                check_op(op, *arrays, expect=list(outputs), tolerance=tolerance, reference=False)


def test_the_count_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    total = sum(map(len, cases().values()))
    covered = sum(
        any(is_computed(case, arrays) for _, arrays, _ in rebuilt(case)) for some in cases().values() for case in some
    )
    with capsys.disabled():
        print(f"\nONNX node cases: {covered} of {total} of {len(REBUILT)} operators rebuilt")
    assert covered > 350
