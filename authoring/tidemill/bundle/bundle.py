"""Bundle: traced graphs and their weights, ready to be written as one folder; knows nothing of modules or tracing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from os import PathLike
from pathlib import Path

import onnx

from tidemill.bundle.external import bind_weights, serialize_model, weight_specs
from tidemill.bundle.manifest import MAIN_GRAPH, MANIFEST_FILE, BundleManifest, GraphEntry
from tidemill.bundle.staging import staged_folder
from tidemill.bundle.stored import StoredBundle, file_entry, open_bundle
from tidemill.driver.dlpack import DLPackArray
from tidemill.protocol.types import TensorSpec
from tidemill.weights.check import WeightKeys, find_faults
from tidemill.weights.checkpoint import Checkpoint
from tidemill.weights.header import SafetensorsHeader, read_header
from tidemill.weights.safetensors import SafetensorsFile, write_safetensors

__all__ = ["WEIGHTS_FILE", "Bundle", "GraphPart"]

WEIGHTS_FILE = "weights.safetensors"


@dataclass(frozen=True, slots=True)
class GraphPart:
    """One traced graph.

    Attributes:
        model: The ONNX model. Its weights are initializers with name, dims and data_type, data_location EXTERNAL and
            no location yet; small constants are embedded.
        inputs: The inputs in order.
        outputs: The outputs in order.
    """

    model: onnx.ModelProto
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True)
class Bundle:
    """Graphs over one set of weights.

    Attributes:
        name: The model's name.
        graphs: Graphs by key; "main" becomes model.onnx, another key becomes <key>.onnx.
        weights: A safetensors file, taken byte for byte; or another checkpoint (`*.index.json`, a folder); or arrays
            by name. Tensors that no graph uses are kept.
        rename: Weight name to the key in `weights`, where the two differ.
        tied: Other names of a weight, each with the name that the graphs use. `weights` may hold any of them.
        source: Dotted path of the traced class.

    Raises:
        ValueError: There is no graph, or a key makes no file name.
    """

    name: str
    graphs: Mapping[str, GraphPart]
    weights: str | PathLike[str] | Mapping[str, DLPackArray] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    tied: Mapping[str, str] = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        if not self.graphs:
            raise ValueError(f"bundle {self.name!r} has no graph")
        for key in self.graphs:
            if not key or not key.isprintable() or key.startswith(".") or set(key) & set("/\\:"):
                raise ValueError(f"graph key {key!r} makes no file name; use letters, digits, '_', '-' and '.'")
        if MAIN_GRAPH in self.graphs and "model" in self.graphs:
            raise ValueError(f"graph keys 'model' and {MAIN_GRAPH!r} both mean model.onnx; rename one")

    def write(self, directory: str | PathLike[str]) -> StoredBundle:
        """Write the bundle's folder; it appears whole or not at all.

        Args:
            directory: The folder to make. A bundle that is there is replaced.

        Returns:
            The bundle as opened from the folder.

        Raises:
            FileExistsError: The folder is there and is no bundle.
            ValueError: Weights are missing or have another shape or dtype; all of them are named.
        """
        target = Path(directory).absolute()
        with staged_folder(target) as folder:
            file = self._write_weights(folder)
            self._write_graphs(folder, file)
            (folder / MANIFEST_FILE).write_text(self._manifest(folder).to_json(), encoding="utf-8")
        return open_bundle(target)

    def _write_weights(self, folder: Path) -> SafetensorsFile:
        stored = folder / WEIGHTS_FILE
        if not isinstance(self.weights, Mapping) and Path(self.weights).suffix == ".safetensors":
            self._check(SafetensorsFile(read_header(self.weights)))
            # A hard link would save the bytes, and onnx.checker refuses external data with a second link.
            shutil.copyfile(self.weights, stored)
            return SafetensorsFile(read_header(stored))
        arrays: Mapping[str, DLPackArray]
        arrays = self.weights if isinstance(self.weights, Mapping) else Checkpoint.open(self.weights)
        if arrays:
            write_safetensors(stored, arrays)
        file = SafetensorsFile(read_header(stored) if arrays else SafetensorsHeader(stored, 0, {}))
        self._check(file)
        return file

    def _check(self, file: SafetensorsFile) -> None:
        faults = [
            fault if len(self.graphs) == 1 else f"graph {key!r}: {fault}"
            for key, part in self.graphs.items()
            for fault in find_faults(weight_specs(part.model), file.header.tensors, self._keys, file)
        ]
        if faults:
            raise ValueError(f"bundle {self.name!r} does not fit its weights: {'; '.join(faults)}")

    def _write_graphs(self, folder: Path, file: SafetensorsFile) -> None:
        for key, part in self.graphs.items():
            bound = bind_weights(part.model, file.header.tensors, self._keys, WEIGHTS_FILE)
            (folder / _graph_file(key)).write_bytes(serialize_model(key, bound))

    def _manifest(self, folder: Path) -> BundleManifest:
        return BundleManifest(
            name=self.name,
            graphs={key: GraphEntry(_graph_file(key), part.inputs, part.outputs) for key, part in self.graphs.items()},
            files={file.name: file_entry(file) for file in sorted(folder.iterdir())},
            opset=max(_opsets(self.graphs), default=0),
            weights_file=WEIGHTS_FILE if (folder / WEIGHTS_FILE).exists() else None,
            tied=self.tied,
            source=self.source,
            created_with={"tidemill": version("tidemill"), "onnx": onnx.__version__},
        )

    @property
    def _keys(self) -> WeightKeys:
        return WeightKeys(self.rename, self.tied)


def _graph_file(key: str) -> str:
    return "model.onnx" if key == MAIN_GRAPH else f"{key}.onnx"


def _opsets(graphs: Mapping[str, GraphPart]) -> Iterator[int]:
    for part in graphs.values():
        yield from (entry.version for entry in part.model.opset_import if entry.domain in ("", "ai.onnx"))
