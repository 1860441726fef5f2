"""Activation functions by the names that model configurations use."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial

from tidemill.graph import ops
from tidemill.graph.value import TensorValue

__all__ = ["ACTIVATIONS", "activation_function_from_name"]

ACTIVATIONS: dict[str, Callable[[TensorValue], TensorValue]] = {
    "gelu": ops.gelu,
    "gelu_quick": partial(ops.gelu, approximate="quick"),
    "gelu_tanh": partial(ops.gelu, approximate="tanh"),
    "relu": ops.relu,
    "sigmoid": ops.sigmoid,
    "silu": ops.silu,
    "tanh": ops.tanh,
}


def activation_function_from_name(name: str) -> Callable[[TensorValue], TensorValue]:
    """The function of that name; ValueError, with the known names, if there is none."""
    if name not in ACTIVATIONS:
        close = get_close_matches(name, ACTIVATIONS, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown activation function {name!r}{hint} Known are {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[name]
