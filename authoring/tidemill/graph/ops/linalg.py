"""Products of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.graph.context import current, emit
from tidemill.graph.dim import Dim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.elementwise import add, mul
from tidemill.graph.ops.kernels import compute
from tidemill.graph.ops.promote import TensorLike, cast_to, check_numbers, operands
from tidemill.graph.ops.shaping import reshape, transpose, unsqueeze
from tidemill.graph.shape import Shape

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["linear", "matmul", "outer"]


def matmul(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The matrix product over the last two axes; the others broadcast, vectors count as in numpy.

    `x @ weight.T` reads the weight as it lies in its file: it becomes a Gemm that transposes while it multiplies,
    because ONNX Runtime would fold a Transpose into a private copy of the weight.
    """
    left, right = operands("matmul", lhs, rhs)
    _check_inner(left, right)
    stored = current().transposed_from(right)
    if stored is not None and right.rank == 2 and left.rank >= 2 and left.dtype.is_float():
        return linear(left, stored)
    check_numbers("matmul", left)
    return compute("MatMul", [left, right], left.type.with_shape(_product_shape(left, right)))


def linear(x: TensorLike, weight: TensorLike, bias: TensorLike | None = None) -> TensorValue:
    """`x @ weight.T + bias`.

    Args:
        x: [..., in], numbers.
        weight: [out, in], as checkpoints store it.
        bias: [out], or None.

    Returns:
        [..., out].
    """
    value, matrix = operands("linear", x, weight)
    shift: TensorValue | None = None
    if bias is not None:
        value, shift = operands("linear", value, bias)
        matrix = cast_to(matrix, value.dtype)
    _check_linear(value, matrix, shift)
    if not value.dtype.is_float():
        product = matmul(value, transpose(matrix, 0, 1))
        return product if shift is None else add(product, shift)
    count = Shape(value.shape[:-1]).num_elements
    rows = value if value.rank == 2 else reshape(value, (count, matrix.shape[1]))
    inputs = [rows, matrix] if shift is None else [rows, matrix, shift]
    product = emit("Gemm", inputs, rows.type.with_shape((rows.shape[0], matrix.shape[0])), transB=1)
    return product if value.rank == 2 else reshape(product, (*value.shape[:-1], matrix.shape[0]))


def outer(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The product of every element of `lhs` with every element of `rhs`; both are vectors."""
    left, right = operands("outer", lhs, rhs)
    if left.rank != 1 or right.rank != 1:
        raise op_fault("outer", {"lhs": left, "rhs": right}, "takes two vectors")
    return mul(unsqueeze(left, 1), unsqueeze(right, 0))


def _check_linear(value: TensorValue, matrix: TensorValue, shift: TensorValue | None) -> None:
    check_numbers("linear", value)
    if matrix.rank != 2 or value.rank < 1 or value.shape[-1] != matrix.shape[1]:
        raise op_fault(
            "linear",
            {"x": value, "weight": matrix},
            "Matrix multiplication input "
            f"lhs (shape {value.shape}) dimension at axis -1 (value {value.shape[-1] if value.rank else 'none'}) must "
            f"match input rhs (shape {Shape(reversed(matrix.shape))}) dimension at axis -2 (value "
            f"{matrix.shape[-1] if matrix.rank else 'none'}), which is the weight [out, in] transposed",
        )
    if shift is not None and shift.shape != matrix.shape[:1]:
        raise op_fault("linear", {"weight": matrix, "bias": shift}, f"bias must be [out] = {matrix.shape[:1]}")


def _check_inner(lhs: TensorValue, rhs: TensorValue) -> None:
    if not lhs.rank or not rhs.rank:
        raise op_fault("matmul", {"lhs": lhs, "rhs": rhs}, "takes no scalars; use *")
    axis = -2 if rhs.rank > 1 else -1
    if lhs.shape[-1] != rhs.shape[axis]:
        raise op_fault(
            "matmul",
            {"lhs": lhs, "rhs": rhs},
            f"Matrix multiplication input lhs (shape {lhs.shape}) dimension at axis -1 (value {lhs.shape[-1]}) must "
            f"match input rhs (shape {rhs.shape}) dimension at axis {axis} (value {rhs.shape[axis]})",
        )


def _product_shape(lhs: TensorValue, rhs: TensorValue) -> Shape:
    left, right = Shape(lhs.shape[:-2]), Shape(rhs.shape[:-2])
    batch = _broadcast(lhs, rhs, left, right)
    rows = lhs.shape[-2:-1] if lhs.rank > 1 else []
    columns = rhs.shape[-1:] if rhs.rank > 1 else []
    return Shape([*batch, *rows, *columns])


def _broadcast(lhs: TensorValue, rhs: TensorValue, left: Shape, right: Shape) -> list[Dim]:
    rank = max(len(left), len(right))
    padded = zip([Dim(1)] * (rank - len(left)) + left, [Dim(1)] * (rank - len(right)) + right, strict=True)
    dims = []
    for one, other in padded:
        if one != other and one != 1 and other != 1:
            raise op_fault("matmul", {"lhs": lhs, "rhs": rhs}, f"batch dims {left} and {right} do not broadcast")
        dims.append(other if one == 1 else one)
    return dims
