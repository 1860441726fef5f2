"""Sums of products, written with one letter for each axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.graph.context import as_tensor
from tidemill.graph.dim import Dim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.kernels import compute
from tidemill.graph.ops.promote import TensorLike, cast_to, check_numbers, promoted

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["einsum"]


def einsum(equation: str, *operands: TensorLike) -> TensorValue:
    """The sum of products in Einstein's notation, as `numpy.einsum`: `einsum("bqd,bkd->bqk", q, k)`.

    Args:
        equation: A letter for each axis of each operand; equal letters are one axis. What follows "->" says which are
            kept, in which order; without it those that occur once, in the order of the alphabet. "..." is refused.
        *operands: Floating point numbers, as many as the equation has terms. Integers are refused: ONNX Runtime
            would add them up in floating point.
    """
    values = [as_tensor(operand) for operand in operands]
    terms, kept = _parse(equation, values)
    for value in values:
        _check_floats(value)
    dtype = values[0].dtype
    for value in values[1:]:
        dtype = promoted("einsum", values[0], value) if value.dtype is not dtype else dtype
    sizes = _sizes(equation, terms, values)
    ready = [cast_to(value, dtype) for value in values]
    type = ready[0].type.with_shape([sizes[letter] for letter in kept])
    return compute("Einsum", ready, type, equation=f"{','.join(terms)}->{kept}")


def _check_floats(value: TensorValue) -> None:
    check_numbers("einsum", value)
    if not value.dtype.is_float():
        raise op_fault("einsum", {"operand": value}, f"takes floating point numbers, not {value.dtype!r}; use matmul")


def _parse(equation: str, values: list[TensorValue]) -> tuple[list[str], str]:
    left, arrow, kept = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow:
        kept = "".join(sorted(letter for letter in set(left) - {","} if left.count(letter) == 1))
    letters = "".join(terms)
    well_formed = values and all(one.isascii() and one.isalpha() for one in letters + kept)
    if not well_formed or not set(kept) <= set(letters) or len(set(kept)) != len(kept):
        raise ValueError(f"einsum: {equation!r} must be letters, one for each axis, as in 'ij,jk->ik'")
    if [len(term) for term in terms] != [value.rank for value in values]:
        raise ValueError(f"einsum: {equation!r} does not fit operands of rank {[value.rank for value in values]}")
    return terms, kept


def _sizes(equation: str, terms: list[str], values: list[TensorValue]) -> dict[str, Dim]:
    sizes: dict[str, Dim] = {}
    for term, value in zip(terms, values, strict=True):
        for letter, dim in zip(term, value.shape, strict=True):
            if sizes.setdefault(letter, dim) != dim:
                shown = {f"operand {place}": one for place, one in enumerate(values)}
                raise op_fault("einsum", shown, f"axis {letter!r} of {equation!r} is both {sizes[letter]} and {dim}")
    return sizes
