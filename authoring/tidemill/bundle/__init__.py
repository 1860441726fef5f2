"""Bundles: a graph, its weights and its signature in one folder.

Names are looked up when used: a server opens bundles without onnx, and without pydantic until it reads a config.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.bundle.bundle import Bundle, GraphPart
    from tidemill.bundle.config import ModelConfig, load_config
    from tidemill.bundle.foreign import open_foreign
    from tidemill.bundle.imported import import_model
    from tidemill.bundle.local import make_local
    from tidemill.bundle.manifest import BundleManifest, FileEntry, GraphEntry
    from tidemill.bundle.stored import StoredBundle, open_bundle

__all__ = [
    "Bundle",
    "BundleManifest",
    "FileEntry",
    "GraphEntry",
    "GraphPart",
    "ModelConfig",
    "StoredBundle",
    "import_model",
    "load_config",
    "make_local",
    "open_bundle",
    "open_foreign",
]

_FILES = {
    "Bundle": "bundle",
    "GraphPart": "bundle",
    "ModelConfig": "config",
    "load_config": "config",
    "open_foreign": "foreign",
    "import_model": "imported",
    "make_local": "local",
    "BundleManifest": "manifest",
    "FileEntry": "manifest",
    "GraphEntry": "manifest",
    "StoredBundle": "stored",
    "open_bundle": "stored",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
