"""Layer: a callable whose calls the graph notes down."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from tidemill.graph.context import current_or_none
from tidemill.graph.naming import Namer
from tidemill.nn.layer.hooks import run_hooks

__all__ = ["Layer", "parameter_names"]


class Layer:
    """The base of everything that is called while a graph is traced.

    A subclass writes `__call__`; each call is noted in the graph, so that equal modules can share a function, and shown
    to the hooks.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = cls.__dict__.get("__call__")
        if own is not None and not getattr(own, "__isabstractmethod__", False):
            cls.__call__ = _noted(own)  # type: ignore[method-assign]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Append the layer's computation to the graph being traced."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__")


def parameter_names(function: Callable[..., Any], count: int) -> list[str]:
    """What the first `count` positional arguments of a bound call are named; those of `*rest` are `rest_0`, ..."""
    parameters = inspect.signature(function).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in positional]
    rest = next((one.name for one in parameters if one.kind is inspect.Parameter.VAR_POSITIONAL), "input")
    namer = Namer(names)
    return [*names[:count], *(namer.name(f"{rest}_{place}") for place in range(count - len(names)))]


def _noted(function: Callable[..., Any]) -> Callable[..., Any]:
    names = parameter_names(function, len(inspect.signature(function).parameters))[1:]

    @wraps(function)
    def call(self: Layer, *args: Any, **kwargs: Any) -> Any:
        graph = current_or_none()
        if graph is None:
            return run_hooks(self, args, kwargs, function(self, *args, **kwargs))
        with graph.span(self, [*zip(names, args, strict=False), *kwargs.items()]):
            outputs = function(self, *args, **kwargs)
        return run_hooks(self, args, kwargs, outputs)

    return call
