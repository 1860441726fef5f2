"""What an optimised graph follows from, as one digest; if any of it differs, the graph is compiled anew."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable

from tidemill.bundle.manifest import GraphEntry
from tidemill.bundle.stored import StoredBundle, file_entry
from tidemill.engine.session_options import SessionOptions
from tidemill.engine.threads import read_file

__all__ = ["artifact_key", "cpu_kind"]

_LAYOUT = 1  # of the artifacts; raised when tidemill makes them otherwise


def artifact_key(bundle: StoredBundle, graph: GraphEntry, options: SessionOptions, runtime_version: str) -> str:
    """A sha256 as hex over model, weights, provider, options, ONNX Runtime's version and the kind of CPU.

    The graph is read, as it is small and says where in the files its weights lie; of the other files the manifest's
    digests are taken.
    """
    facts = {
        "layout": _LAYOUT,
        "graph": file_entry(bundle.path / graph.file).sha256,
        "files": {name: entry.sha256 for name, entry in bundle.manifest.files.items() if name != graph.file},
        "providers": options.providers,
        "options": {name: dict(values) for name, values in options.provider_options.items()},
        "custom_ops": [file_entry(library).sha256 for library in options.custom_ops],
        "onnxruntime": runtime_version,
        "cpu": cpu_kind(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def cpu_kind(read: Callable[[str], str | None] = read_file) -> str:
    """The processor's family and what it can do: constants are folded by kernels that differ with it."""
    lines = (read("/proc/cpuinfo") or "").splitlines()
    flags = next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {' '.join(sorted(flags.split()))}"
