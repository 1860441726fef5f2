"""Layers: the modules that models are made of."""

from tidemill.nn.embedding import Embedding
from tidemill.nn.identity import Identity
from tidemill.nn.layer import (
    Layer,
    LayerList,
    LoadReport,
    MissingLayer,
    Module,
    Sequential,
    add_layer_hook,
    clear_hooks,
)
from tidemill.nn.linear import Linear
from tidemill.nn.norm import LayerNorm, RMSNorm

__all__ = [
    "Embedding",
    "Identity",
    "Layer",
    "LayerList",
    "LayerNorm",
    "Linear",
    "LoadReport",
    "MissingLayer",
    "Module",
    "RMSNorm",
    "Sequential",
    "add_layer_hook",
    "clear_hooks",
]
