"""The sizes of axes: fixed, named, or arithmetic over names, kept in a normal form; knows nothing of tensors.

A dim is a polynomial with whole coefficients over atoms; an atom is a symbol or a floor division that does not come
out even. Equal sizes therefore compare equal however they were written: `(a + 1) * 2 == a * 2 + 2`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import SupportsIndex, TypeAlias, Union

__all__ = ["AlgebraicDim", "Dim", "DimLike", "StaticDim", "SymbolicDim"]

DimLike: TypeAlias = Union[int, str, "Dim", SupportsIndex]


class Dim:
    """The size of one axis; `Dim(4)` is static, `Dim("batch")` symbolic, arithmetic over them algebraic.

    Raises:
        TypeError: The value is neither a whole number, a name nor a Dim.
        ValueError: The name is not an identifier.
    """

    __slots__ = ()

    def __new__(cls, value: DimLike) -> Dim:
        """The dim of a number, a name or another dim."""
        if isinstance(value, Dim):
            return value
        if isinstance(value, str):
            return SymbolicDim(value)
        if isinstance(value, float) or not hasattr(value, "__index__"):
            raise TypeError(f"Unsupported dimension type {value} ({type(value)})")
        return StaticDim(value)

    def terms(self) -> Terms:
        """The normal form: (atoms, factor) of each term, sorted; empty for zero."""
        raise NotImplementedError(f"{type(self).__name__} has no terms")

    def substitute(self, sizes: Mapping[str, Dim]) -> Dim:  # noqa: ARG002  (a size has no symbols)
        """This dim with symbols replaced by the dims of `sizes`; symbols that it lacks stay."""
        return self

    @property
    def symbols(self) -> frozenset[str]:
        """The names of the symbols that this dim depends on."""
        return frozenset()

    def __add__(self, other: DimLike) -> Dim:
        return _dim(_sum(self.terms(), Dim(other).terms()))

    def __mul__(self, other: DimLike) -> Dim:
        return _dim(_product(self.terms(), Dim(other).terms()))

    def __floordiv__(self, other: DimLike) -> Dim:
        return _floor_divide(self, Dim(other))

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: DimLike) -> Dim:
        return self + Dim(other) * -1

    def __radd__(self, other: DimLike) -> Dim:
        return Dim(other) + self

    def __rmul__(self, other: DimLike) -> Dim:
        return self * other

    def __rsub__(self, other: DimLike) -> Dim:
        return Dim(other) - self

    def __rfloordiv__(self, other: DimLike) -> Dim:
        return Dim(other) // self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Dim, str)) and not hasattr(other, "__index__"):
            return NotImplemented
        try:
            return self.terms() == Dim(other).terms()
        except ValueError:
            return False

    def __hash__(self) -> int:
        return hash(self.terms())

    def __int__(self) -> int:
        raise TypeError(f"int({self!r}): Int conversions only supported for static dims")


class StaticDim(Dim):
    """A size that is known."""

    __slots__ = ("dim",)

    dim: int

    def __new__(cls, dim: SupportsIndex) -> StaticDim:
        """The static dim of a whole number."""
        self = object.__new__(cls)
        self.dim = operator.index(dim)
        return self

    def __getnewargs__(self) -> tuple[int]:
        return (self.dim,)

    def terms(self) -> Terms:
        """One term without atoms, none for zero."""
        return (((), self.dim),) if self.dim else ()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)

    def __hash__(self) -> int:
        return hash(self.dim)

    def __int__(self) -> int:
        return self.dim

    def __index__(self) -> int:
        return self.dim

    def __str__(self) -> str:
        return str(self.dim)

    def __repr__(self) -> str:
        return f"Dim({self.dim})"


class SymbolicDim(Dim):
    """A size known by name only; equal names are equal sizes."""

    __slots__ = ("name",)

    name: str

    def __new__(cls, name: str | SymbolicDim) -> SymbolicDim:
        """The symbolic dim of an identifier."""
        text = name.name if isinstance(name, SymbolicDim) else name
        if not text.isidentifier():
            raise ValueError("Invalid name for symbolic dimension")
        self = object.__new__(cls)
        self.name = text
        return self

    def __getnewargs__(self) -> tuple[str]:
        return (self.name,)

    def terms(self) -> Terms:
        """The symbol once."""
        return (((self.name,), 1),)

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)

    def __hash__(self) -> int:
        return hash(self.name)

    def substitute(self, sizes: Mapping[str, Dim]) -> Dim:
        """The dim of this name in `sizes`, or itself."""
        return sizes.get(self.name, self)

    @property
    def symbols(self) -> frozenset[str]:
        """This symbol's name."""
        return frozenset((self.name,))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Dim({self.name!r})"


class AlgebraicDim(Dim):
    """Arithmetic over symbols, such as `(seq + 3) // 4`."""

    __slots__ = ("_normal",)

    _normal: Terms

    def __new__(cls, terms: Terms) -> AlgebraicDim:
        """The dim of a normal form; made by arithmetic on dims, not by users."""
        self = object.__new__(cls)
        self._normal = terms
        return self

    def __getnewargs__(self) -> tuple[Terms]:
        return (self._normal,)

    def terms(self) -> Terms:
        """The terms it was made of."""
        return self._normal

    def substitute(self, sizes: Mapping[str, Dim]) -> Dim:
        """The value of this expression over `sizes`."""
        total: Dim = StaticDim(0)
        for atoms, factor in self._normal:
            term: Dim = StaticDim(factor)
            for atom in atoms:
                term = term * _atom(atom).substitute(sizes)
            total = total + term
        return total

    @property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols in the expression."""
        return frozenset(name for atoms, _ in self._normal for atom in atoms for name in _atom(atom).symbols)

    def __str__(self) -> str:
        return " + ".join(_term_text(atoms, factor, str) for atoms, factor in self._normal)

    def __repr__(self) -> str:
        return " + ".join(_term_text(atoms, factor, repr) for atoms, factor in self._normal)


class FloorDiv(Dim):
    """A division that does not come out even: an atom of the normal form, never a dim of its own."""

    __slots__ = ("denominator", "numerator")

    numerator: Dim
    denominator: Dim

    def __new__(cls, numerator: Dim, denominator: Dim) -> FloorDiv:
        self = object.__new__(cls)
        self.numerator, self.denominator = numerator, denominator
        return self

    def __getnewargs__(self) -> tuple[Dim, Dim]:
        return self.numerator, self.denominator

    def terms(self) -> Terms:
        """The division once."""
        return (((self,), 1),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FloorDiv):
            return False
        return self.numerator == other.numerator and self.denominator == other.denominator

    def __hash__(self) -> int:
        return hash((self.numerator, self.denominator))

    def substitute(self, sizes: Mapping[str, Dim]) -> Dim:
        return self.numerator.substitute(sizes) // self.denominator.substitute(sizes)

    @property
    def symbols(self) -> frozenset[str]:
        return self.numerator.symbols | self.denominator.symbols

    def __str__(self) -> str:
        return f"{_grouped(self.numerator, str)} // {_grouped(self.denominator, str)}"

    def __repr__(self) -> str:
        return f"{_grouped(self.numerator, repr)} // {_grouped(self.denominator, repr)}"


Atom: TypeAlias = str | FloorDiv
Terms: TypeAlias = tuple[tuple[tuple[Atom, ...], int], ...]


def exact_quotient(dividend: Dim, divisor: Dim) -> Dim | None:
    """`dividend / divisor` where it provably comes out even, else None.

    Proved term by term, which needs a divisor of one term; that is every product of sizes.
    """
    terms = divisor.terms()
    if len(terms) != 1:
        return StaticDim(1) if terms and dividend == divisor else None
    atoms, factor = terms[0]
    quotient = []
    for term_atoms, term_factor in dividend.terms():
        rest = _without(term_atoms, atoms)
        if rest is None or term_factor % factor:
            return None
        quotient.append((rest, term_factor // factor))
    return _dim(_normal(quotient))


def _floor_divide(numerator: Dim, denominator: Dim) -> Dim:
    if denominator == 0:
        raise ZeroDivisionError(f"{numerator} // {denominator}")
    if isinstance(numerator, StaticDim) and isinstance(denominator, StaticDim):
        return StaticDim(numerator.dim // denominator.dim)
    even = exact_quotient(numerator, denominator)
    return even if even is not None else AlgebraicDim((((FloorDiv(numerator, denominator),), 1),))


def _without(atoms: tuple[Atom, ...], taken: tuple[Atom, ...]) -> tuple[Atom, ...] | None:
    rest = list(atoms)
    for atom in taken:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _normal(terms: Iterable[tuple[tuple[Atom, ...], int]]) -> Terms:
    factors: dict[tuple[Atom, ...], int] = {}
    for atoms, factor in terms:
        key = tuple(sorted(atoms, key=str))
        factors[key] = factors.get(key, 0) + factor
    kept = [(atoms, factor) for atoms, factor in factors.items() if factor]
    return tuple(sorted(kept, key=lambda term: (not term[0], [str(atom) for atom in term[0]])))


def _sum(left: Terms, right: Terms) -> Terms:
    return _normal((*left, *right))


def _product(left: Terms, right: Terms) -> Terms:
    return _normal((a + b, m * n) for a, m in left for b, n in right)


def _dim(terms: Terms) -> Dim:
    if not terms:
        return StaticDim(0)
    atoms, factor = terms[0]
    if len(terms) == 1 and not atoms:
        return StaticDim(factor)
    if len(terms) == 1 and factor == 1 and len(atoms) == 1 and isinstance(atoms[0], str):
        return SymbolicDim(atoms[0])
    return AlgebraicDim(terms)


def _atom(atom: Atom) -> Dim:
    return SymbolicDim(atom) if isinstance(atom, str) else atom


def _term_text(atoms: tuple[Atom, ...], factor: int, form: Callable[[object], str]) -> str:
    parts = [form(_atom(atom)) for atom in atoms]
    if factor != 1 or not parts:
        parts.append(form(StaticDim(factor)))
    return " * ".join(parts)


def _grouped(dim: Dim, form: Callable[[object], str]) -> str:
    text = form(dim)
    return f"({text})" if isinstance(dim, AlgebraicDim) else text
