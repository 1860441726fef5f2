"""Functions that see every layer call; the list is per process, as in the seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from tidemill.nn.layer.layer import Layer

__all__ = ["LayerHook", "add_layer_hook", "clear_hooks", "run_hooks"]

LayerHook: TypeAlias = Callable[["Layer", tuple[Any, ...], dict[str, Any], Any], Any]

_HOOKS: list[LayerHook] = []


def add_layer_hook(hook: LayerHook) -> None:
    """Call `hook(layer, args, kwargs, outputs)` after every layer call, children first.

    What it returns replaces the outputs, unless it is None. A hook that appends operators changes the traced bodies,
    so modules it treats differently no longer share a function.
    """
    _HOOKS.append(hook)


def clear_hooks() -> None:
    """Forget all hooks."""
    _HOOKS.clear()


def run_hooks(layer: Layer, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> Any:
    """The outputs after all hooks have seen them."""
    for hook in _HOOKS:
        replaced = hook(layer, args, kwargs, outputs)
        outputs = outputs if replaced is None else replaced
    return outputs
