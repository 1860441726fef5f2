"""The module tree: every module once, breadth first, with its prefix; and the full names of its weights."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidemill.graph.weight import Weight

if TYPE_CHECKING:
    from tidemill.nn.layer.module import Module

__all__ = ["Visit", "owned_weights", "visits", "walk_modules"]


class Visit(NamedTuple):
    """A module as it was reached.

    Attributes:
        prefix: What its weights' full names begin with: empty, or a path with a final dot.
        path: The attributes that lead to it; differs from the prefix where a module leaves its name out.
        module: The module.
    """

    prefix: str
    path: str
    module: Module


def visits(root: Module) -> Iterator[Visit]:
    """Every module below `root`, itself first; one that several paths lead to comes once, by the shortest."""
    queue = deque([Visit("", "", root)])
    seen = {id(root)}
    while queue:
        visit = queue.popleft()
        yield visit
        for name, child in visit.module.sublayers.items():
            if id(child) not in seen:
                seen.add(id(child))
                omitted = child._omit_module_attr_name
                prefix = visit.prefix if omitted else f"{visit.prefix}{name}."
                queue.append(Visit(prefix, f"{visit.path}.{name}".lstrip("."), child))


def walk_modules(root: Module) -> Iterator[tuple[str, Module]]:
    """The (prefix, module) pairs of `Module.named_modules`."""
    for visit in visits(root):
        yield visit.prefix, visit.module


def owned_weights(root: Module) -> dict[str, Weight]:
    """Every weight by its full name; a weight that a module only shares is left out there.

    Raises:
        ValueError: Two weights have one full name.
    """
    weights: dict[str, Weight] = {}
    paths: dict[str, str] = {}
    for visit in visits(root):
        for local, weight in visit.module.owned_weights().items():
            name = visit.prefix + local
            if name in weights:
                raise ValueError(_duplicate_text(name, paths[name], visit.path, local))
            weights[name] = weight
            paths[name] = visit.path or local
    _warn_of_accidental_ties(weights)
    return weights


def _warn_of_accidental_ties(weights: dict[str, Weight]) -> None:
    names: dict[int, str] = {}
    for name, weight in weights.items():
        first = names.setdefault(id(weight), name)
        if first != name:
            warnings.warn(
                f"{first!r} and {name!r} are one Weight object under two keys of the state dict; to tie them, call "
                "set_shared_weight on the module that should not own it",
                stacklevel=4,
            )


def _duplicate_text(name: str, first: str, path: str, local: str) -> str:
    second = path or local
    return (
        f"Duplicate weight FQN {name!r} produced by two distinct attribute paths: {first!r} and {second!r}. Two "
        "weights cannot share the same fully-qualified name in a module's state_dict.\n\n"
        "A module with `_omit_module_attr_name = True` (such as StackedLinear with stacked=False) leaves its own "
        "attribute name out, so a child of it can meet a sibling of the same name here.\n\n"
        "Rename one of the attributes, or set `_omit_module_attr_name = False` on the module whose name should stay."
    )
