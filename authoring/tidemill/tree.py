"""Nested containers taken apart into leaves and put together again; knows nothing of tensors, graphs or modules."""

from __future__ import annotations

import builtins
import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, TypeVar, cast, dataclass_transform

__all__ = ["TreeDef", "dataclass", "flatten", "flatten_with_paths", "map", "unflatten"]

_T = TypeVar("_T")
_DICTS = (dict, OrderedDict, defaultdict)


@dataclasses.dataclass(frozen=True, slots=True)
class TreeDef:
    """The structure of a tree without its leaves; equal for equal structures.

    Attributes:
        kind: The container's class; None for a leaf.
        children: The structures of the children, in leaf order.
        keys: One path step a child: dict key, field name or index.
        meta: What the container needs besides its children (a defaultdict's factory, the second result of
            `__tree_flatten__`).
        order: A dict's keys as they were inserted. Not compared: leaves always come in sorted key order.
    """

    kind: type | None
    children: tuple[TreeDef, ...] = ()
    keys: tuple[Hashable, ...] = ()
    meta: Any = None
    order: tuple[Hashable, ...] = field(default=(), compare=False, repr=False)

    @property
    def num_leaves(self) -> int:
        """How many leaves `unflatten` takes."""
        return 1 if self.kind is None else sum(child.num_leaves for child in self.children)

    def __str__(self) -> str:
        if self.kind is None:
            return "*"
        parts = (f"{key}: {child}" for key, child in zip(self.keys, self.children, strict=True))
        return f"{self.kind.__name__}({', '.join(parts)})"


_LEAF = TreeDef(None)


def flatten(tree: Any) -> tuple[list[Any], TreeDef]:
    """Take a tree apart.

    Containers are list, tuple, namedtuple, dict, OrderedDict and defaultdict (exactly these classes; dicts in sorted
    key order), classes made by `tree.dataclass`, and classes with `__tree_flatten__() -> (children, meta)` and the
    classmethod `__tree_unflatten__(meta, children)`. Everything else is a leaf, None too.

    Args:
        tree: A container or a leaf.

    Returns:
        The leaves in order, and the structure that `unflatten` needs.

    Raises:
        TypeError: A dict's keys cannot be sorted.
    """
    opened = _open(tree)
    if opened is None:
        return [tree], _LEAF
    children, kind = opened
    leaves: list[Any] = []
    parts: list[TreeDef] = []
    for child in children:
        below, part = flatten(child)
        leaves += below
        parts.append(part)
    return leaves, dataclasses.replace(kind, children=tuple(parts))


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """Put a tree together; the inverse of `flatten`.

    Raises:
        ValueError: There are fewer or more leaves than the structure has places.
    """
    given = list(leaves)
    if len(given) != treedef.num_leaves:
        raise ValueError(f"the tree has {treedef.num_leaves} leaves, {len(given)} were given")
    return _build(treedef, iter(given))


def flatten_with_paths(tree: Any) -> list[tuple[str, Any]]:
    """The leaves with their paths: keys, field names and indices joined by dots, as in "a.0.k"; "" for a bare leaf."""
    leaves, treedef = flatten(tree)
    return list(zip(_paths(treedef, ""), leaves, strict=True))


def map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:  # noqa: A001
    """Apply a function to every leaf, or to the corresponding leaves of several trees of one structure.

    Raises:
        ValueError: The trees differ in structure.
    """
    leaves, treedef = flatten(tree)
    columns = [leaves]
    for other in others:
        more, structure = flatten(other)
        if structure != treedef:
            raise ValueError(f"trees differ in structure: {treedef} and {structure}")
        columns.append(more)
    return unflatten(treedef, builtins.map(function, *columns))


@dataclass_transform()
def dataclass(cls: type[_T] | None = None, /, **options: Any) -> Any:
    """Make a class a dataclass whose fields are children of the tree.

    Use it as `@tree.dataclass` or with the options of `dataclasses.dataclass`, as in `@tree.dataclass(frozen=True)`.
    A class that is a dataclass already keeps what it has.
    """
    if cls is None:
        return lambda wrapped: dataclass(wrapped, **options)
    is_made = "__dataclass_fields__" in cls.__dict__  # a subclass of a dataclass inherits it and is none yet
    made = cls if is_made and not options else dataclasses.dataclass(**options)(cls)
    names = tuple(item.name for item in dataclasses.fields(cast(Any, made)))
    _set_protocol(made, names)
    return made


def _set_protocol(cls: type, names: tuple[str, ...]) -> None:
    def tree_flatten(self: Any) -> tuple[tuple[Any, ...], None]:
        return tuple(getattr(self, name) for name in names), None

    def tree_unflatten(kind: type, _meta: None, children: Sequence[Any]) -> Any:
        made: Any = object.__new__(kind)
        for name, child in zip(names, children, strict=True):
            object.__setattr__(made, name, child)
        return made

    members = {
        "__tree_names__": names,
        "__tree_flatten__": tree_flatten,
        "__tree_unflatten__": classmethod(tree_unflatten),
    }
    for member, value in members.items():
        setattr(cls, member, value)


def _open(tree: Any) -> tuple[Sequence[Any], TreeDef] | None:
    """The children of a container and its own part of the structure; None for a leaf."""
    kind = type(tree)
    if hasattr(kind, "__tree_flatten__"):
        children, meta = tree.__tree_flatten__()
        names = getattr(kind, "__tree_names__", range(len(children)))
        return children, TreeDef(kind, keys=tuple(names), meta=meta)
    if kind in (list, tuple):
        return tree, TreeDef(kind, keys=tuple(range(len(tree))))
    if _is_namedtuple(kind):
        return tree, TreeDef(kind, keys=kind._fields)
    if kind in _DICTS:
        keys = _sorted_keys(tree)
        meta = tree.default_factory if kind is defaultdict else None
        return [tree[key] for key in keys], TreeDef(kind, keys=keys, meta=meta, order=tuple(tree))
    return None


def _sorted_keys(tree: dict[Any, Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(tree))
    except TypeError:
        kinds = ", ".join(sorted({type(key).__name__ for key in tree}))
        raise TypeError(f"the keys of a dict in a tree must be sortable; given were keys of type {kinds}") from None


def _build(treedef: TreeDef, leaves: Iterator[Any]) -> Any:
    kind = treedef.kind
    if kind is None:
        return next(leaves)
    children = [_build(child, leaves) for child in treedef.children]
    if hasattr(kind, "__tree_unflatten__"):
        return kind.__tree_unflatten__(treedef.meta, children)
    if _is_namedtuple(kind):
        return cast(Any, kind)._make(children)
    if kind not in _DICTS:
        return kind(children)
    by_key = dict(zip(treedef.keys, children, strict=True))
    made: dict[Any, Any] = defaultdict(treedef.meta) if kind is defaultdict else kind()
    made.update((key, by_key[key]) for key in treedef.order)
    return made


def _is_namedtuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _paths(treedef: TreeDef, path: str) -> Iterator[str]:
    if treedef.kind is None:
        yield path
    for key, child in zip(treedef.keys, treedef.children, strict=True):
        yield from _paths(child, f"{path}.{key}" if path else str(key))
