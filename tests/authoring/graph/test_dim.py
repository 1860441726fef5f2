"""Dim arithmetic against Python's integers."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.graph import AlgebraicDim, Dim, Shape, StaticDim, SymbolicDim
from tidemill.graph.dim import exact_quotient

NAMES = ("a", "b", "c")
SIZES = st.fixed_dictionaries({name: st.integers(0, 50) for name in NAMES})
LEAVES = st.one_of(st.sampled_from(NAMES), st.integers(0, 9))
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.tuples(st.sampled_from("+*-"), inner, inner) | st.tuples(st.just("//"), inner, st.integers(1, 5)),
)


def as_dim(expression: Any) -> Dim:
    return _evaluate(expression, Dim)


def as_int(expression: Any, sizes: dict[str, int]) -> int:
    return _evaluate(expression, lambda leaf: sizes[leaf] if isinstance(leaf, str) else leaf)


def _evaluate(expression: Any, leaf: Any) -> Any:
    if not isinstance(expression, tuple):
        return leaf(expression)
    operator, left, right = expression
    one, other = _evaluate(left, leaf), _evaluate(right, leaf)
    return {"+": lambda: one + other, "*": lambda: one * other, "-": lambda: one - other, "//": lambda: one // other}[
        operator
    ]()


@given(EXPRESSIONS, SIZES)
def test_arithmetic_is_that_of_integers(expression: Any, sizes: dict[str, int]) -> None:
    dim = as_dim(expression).substitute({name: Dim(size) for name, size in sizes.items()})
    assert isinstance(dim, StaticDim)
    assert int(dim) == as_int(expression, sizes)


@given(EXPRESSIONS, EXPRESSIONS)
def test_sums_and_products_commute(left: Any, right: Any) -> None:
    one, other = as_dim(left), as_dim(right)
    assert one + other == other + one
    assert one * other == other * one
    assert hash(one + other) == hash(other + one)
    assert one - one == 0


@given(EXPRESSIONS)
def test_a_product_divides_evenly(expression: Any) -> None:
    dim = as_dim(expression)
    assert exact_quotient(dim * "a" * 3, Dim("a") * 3) == dim


@given(EXPRESSIONS)
def test_dims_are_copied_and_pickled(expression: Any) -> None:
    dim = as_dim(expression)
    assert copy.deepcopy(dim) == dim
    assert pickle.loads(pickle.dumps(dim)) == dim


@pytest.mark.parametrize(
    ("dim", "kind"), [(Dim("a") * 1, SymbolicDim), (Dim("a") - "a" + 3, StaticDim), (Dim("a") * 2, AlgebraicDim)]
)
def test_the_simplest_kind_stands_for_a_dim(dim: Dim, kind: type[Dim]) -> None:
    assert isinstance(dim, kind)


def test_reflected_operators() -> None:
    assert (7 + Dim("a"), 7 * Dim("a"), 7 - Dim("a")) == (Dim("a") + 7, Dim("a") * 7, Dim("a") * -1 + 7)
    assert 7 // Dim(2) == 3
    with pytest.raises(ZeroDivisionError):
        Dim("a") // 0


def test_what_is_no_dim() -> None:
    with pytest.raises(TypeError, match="Unsupported dimension type None"):
        Dim(None)  # type: ignore[arg-type]
    assert Dim("a") != None  # noqa: E711  (the operator itself)
    assert Dim("a") != "not a name"


def test_shapes() -> None:
    shape = Shape([2, "a", Dim("a") + 1])
    assert str(shape) == "[2, a, a + 1]"
    assert shape.num_elements == Dim("a") * Dim("a") * 2 + Dim("a") * 2
    assert not shape.is_static
    assert shape.substitute({"a": Dim(3)}) == [2, 3, 4]
    assert Shape([]).num_elements == 1
