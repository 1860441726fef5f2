"""Modules and the tree they form."""

from tidemill.nn.layer.hooks import add_layer_hook, clear_hooks
from tidemill.nn.layer.layer import Layer
from tidemill.nn.layer.layer_list import LayerList, MissingLayer, Sequential
from tidemill.nn.layer.loading import LoadReport
from tidemill.nn.layer.module import Module
from tidemill.nn.layer.packing import bundle_graphs

__all__ = [
    "Layer",
    "LayerList",
    "LoadReport",
    "MissingLayer",
    "Module",
    "Sequential",
    "add_layer_hook",
    "bundle_graphs",
    "clear_hooks",
]
