"""In which dtypes the runtime computes an operator, and the casts around it elsewhere; has no operator of its own.

ONNX allows some dtypes that ONNX Runtime has no CPU kernel for, and numpy knows operators on dtypes that ONNX does not
allow. Both are bridged by a dtype that holds every value; where there is none, the operator is refused when it is
called. bfloat16 stays where ONNX allows it: accelerators have those kernels, and the CPU says which node it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidemill.dtype import DType
from tidemill.graph.context import emit
from tidemill.graph.fault import op_fault
from tidemill.graph.ir import Attribute
from tidemill.graph.ops.promote import cast_to, holds
from tidemill.graph.type import TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["compute", "kernel_dtype", "kernel_dtypes"]

_FLOATS = "float16 float32 float64 bfloat16"
_PLAIN_FLOATS = "float16 float32 float64"
_SINGLE = "float16 float32 bfloat16"
_WIDE_INTS = "int32 int64"
_MIN_MAX = f"int8 int32 int64 uint8 uint32 uint64 {_FLOATS}"
_REDUCE = f"{_WIDE_INTS} {_FLOATS}"

# Operator -> the dtypes in which it can be emitted. One that is not here takes whatever its ONNX definition says.
_KERNELS: Mapping[str, str] = {
    **dict.fromkeys(("Min", "Max"), _MIN_MAX),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceProd", "CumSum"), _REDUCE),
    **dict.fromkeys(
        ("ReduceLogSumExp", "Softmax", "LogSoftmax", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Reciprocal"), _FLOATS
    ),
    **dict.fromkeys(("ReduceMin", "ReduceMax"), f"bool int8 uint8 {_REDUCE}"),
    **dict.fromkeys(("ArgMax", "ArgMin"), f"int8 uint8 {_REDUCE}"),
    **dict.fromkeys(("Round", "Sin", "Cos"), _PLAIN_FLOATS),
    **dict.fromkeys(("Erf", "Gelu", "LeakyRelu"), _SINGLE),
    **dict.fromkeys(("Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"), "float16 float32"),
    **dict.fromkeys(("Elu", "Selu", "Softplus", "Softsign", "HardSigmoid", "HardSwish", "Mish"), "float16 float32"),
    **dict.fromkeys(("Conv", "ConvTranspose", "AveragePool", "InstanceNormalization"), "float16 float32"),
    "RoiAlign": "float32 float64",
    "Col2Im": "float32",
    "Resize": "float16 float32 int8 int32 uint8",
    "MaxPool": f"int8 uint8 {_PLAIN_FLOATS}",
    "Where": f"int8 int32 int64 uint8 uint32 {_FLOATS}",
    "Pad": f"bool {_MIN_MAX}",
    "ScatterReduction": "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64",
    "Relu": f"int8 int32 {_FLOATS}",
    "MatMul": f"int32 int64 uint32 uint64 {_FLOATS}",
    "TopK": f"int8 int16 int32 int64 uint8 {_PLAIN_FLOATS}",
    "Einsum": _PLAIN_FLOATS,
}

# These give the same bits for signed and unsigned integers, so uint64 may stand as int64.
_MODULAR = frozenset({"CumSum", "Where"})

_BRIDGES = (DType.int32, DType.int64, DType.float32)


def kernel_dtypes(op: str) -> tuple[DType, ...]:
    """The dtypes that `op` is emitted in; empty where it takes whatever ONNX says."""
    return tuple(DType[name] for name in _KERNELS.get(op, "").split())


def kernel_dtype(op: str, value: TensorValue) -> DType:
    """The dtype in which `op` computes on `value`.

    Raises:
        ValueError: No dtype with a kernel holds all values of that of `value`.
    """
    dtype, allowed = value.dtype, kernel_dtypes(op)
    if not allowed or dtype in allowed:
        return dtype
    if dtype is DType.uint64 and op in _MODULAR:
        return DType.int64
    for bridge in _BRIDGES:
        if bridge in allowed and bridge.is_float() == dtype.is_float() and holds(bridge, dtype):
            return bridge
    names = ", ".join(one.name for one in allowed)
    raise op_fault(op, {"input": value}, f"has no kernel for {dtype!r}, only for {names}; cast to one of them first")


def compute(
    op: str,
    inputs: Sequence[TensorValue | None],
    type: TensorType,
    of: TensorValue | None = None,
    **attributes: Attribute,
) -> TensorValue:
    """Append `op` in a dtype that it has a kernel for, with casts around it where that is another one.

    Args:
        op: An operator of ONNX's own set with one output.
        inputs: Its inputs. Those of the dtype of `of` are cast.
        type: What it gives; cast back if its dtype is that of `of`.
        of: The input whose dtype decides; the first by default.
        **attributes: As in ONNX.
    """
    leader = of if of is not None else inputs[0]
    assert leader is not None
    given, working = leader.dtype, kernel_dtype(op, leader)
    if working is given:
        return emit(op, inputs, type, **attributes)
    ready = [cast_to(one, working) if one is not None and one.dtype is given else one for one in inputs]
    if type.dtype is not given:
        return emit(op, ready, type, **attributes)
    return cast_to(emit(op, ready, type.cast(working), **attributes), given)
