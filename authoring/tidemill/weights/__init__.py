"""Weights: safetensors files and checkpoints, wherever they lie."""

from __future__ import annotations

from tidemill.weights.cache import Cache, CachedFile, CacheOptions, DigestMismatch
from tidemill.weights.checkpoint import Checkpoint
from tidemill.weights.data import WeightData
from tidemill.weights.gguf_file import GgufFile, read_gguf_metadata
from tidemill.weights.header import SafetensorsHeader, TensorEntry, read_header
from tidemill.weights.objectstore import FileChanged, ObjectStore, RemoteFile, StoreOptions
from tidemill.weights.opening import open_checkpoint
from tidemill.weights.report import WeightReport
from tidemill.weights.safetensors import open_safetensors, write_safetensors
from tidemill.weights.store import LocalStore, MemoryStore, WeightStore
from tidemill.weights.walk import Weights, load_weights

__all__ = [
    "Cache",
    "CacheOptions",
    "CachedFile",
    "Checkpoint",
    "DigestMismatch",
    "FileChanged",
    "GgufFile",
    "LocalStore",
    "MemoryStore",
    "ObjectStore",
    "RemoteFile",
    "SafetensorsHeader",
    "StoreOptions",
    "TensorEntry",
    "WeightData",
    "WeightReport",
    "WeightStore",
    "Weights",
    "load_weights",
    "open_checkpoint",
    "open_safetensors",
    "read_gguf_metadata",
    "read_header",
    "write_safetensors",
]
