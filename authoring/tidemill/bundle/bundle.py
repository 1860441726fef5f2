"""Bundle: traced graphs and their weights, ready to be written as one folder; knows nothing of modules or tracing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from os import PathLike
from pathlib import Path

import onnx

from tidemill.bundle.config import CONFIG_FILE, load_config
from tidemill.bundle.external import bind_weights, serialize_model, weight_specs
from tidemill.bundle.manifest import MAIN_GRAPH, MANIFEST_FILE, BundleManifest, GraphEntry
from tidemill.bundle.placement import (
    PlacedWeights,
    WeightSource,
    arrays_of,
    place_arrays,
    place_file,
    place_reference,
    placed,
    stored_file,
)
from tidemill.bundle.staging import staged_folder
from tidemill.bundle.stored import StoredBundle, file_entry, open_bundle
from tidemill.dtype import DType
from tidemill.protocol.types import TensorSpec
from tidemill.weights.cache import Cache
from tidemill.weights.check import WeightKeys, WeightSpec, find_faults
from tidemill.weights.conversion import Conversion, Converted, find_conversions, require_convertible
from tidemill.weights.rename import check_rename
from tidemill.weights.report import WeightReport, report_weights
from tidemill.weights.safetensors import open_safetensors

__all__ = ["Bundle", "GraphPart"]


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
        weights: The path or URL of a checkpoint: a safetensors file, which is taken byte for byte; an `*.index.json`, a
            folder, GGUF or PyTorch, which become one safetensors file. Or arrays by name. Tensors that no graph uses
            are kept.
        rename: Weight name to the key in `weights`, where the two differ, with patterns as in
            `tidemill.weights.rename`; goes before the rules of model.yaml.
        tied: Other names of a weight, each with the name that the graphs use. `weights` may hold any of them.
        source: Dotted path of the traced class.
        dtype: The element type, or its name, to which floats of a checkpoint are converted where the graphs declare it
            and the checkpoint has another; None never converts.

    Raises:
        ValueError: There is no graph, a key makes no file name, or a rule or dtype is none.
    """

    name: str
    graphs: Mapping[str, GraphPart]
    weights: WeightSource = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    tied: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    dtype: DType | str | None = None

    def __post_init__(self) -> None:
        if not self.graphs:
            raise ValueError(f"bundle {self.name!r} has no graph")
        for key in self.graphs:
            if not key or not key.isprintable() or key.startswith(".") or set(key) & set("/\\:"):
                raise ValueError(f"graph key {key!r} makes no file name; use letters, digits, '_', '-' and '.'")
        if MAIN_GRAPH in self.graphs and "model" in self.graphs:
            raise ValueError(f"graph keys 'model' and {MAIN_GRAPH!r} both mean model.onnx; rename one")
        check_rename(self.rename)
        _ = self._dtype

    def report(self, *, cache: Cache | None = None) -> WeightReport:
        """Which weights the checkpoint has, which it lacks, and what of it is used by no graph."""
        return report_weights(self._specs, arrays_of(self.weights, cache), WeightKeys(self.rename, self.tied))

    def write(
        self, directory: str | PathLike[str], *, by_reference: bool = False, cache: Cache | None = None
    ) -> StoredBundle:
        """Write the bundle's folder; it appears whole or not at all.

        A model.yaml beside the folder may hold further rename rules.

        Args:
            directory: The folder to make. A bundle that is there is replaced.
            by_reference: Leave the weights at their URL. The bundle holds the URL and the digest, and what loads it
                fetches them.
            cache: Where remote weights are kept; the user's cache by default.

        Returns:
            The bundle as opened from the folder.

        Raises:
            FileExistsError: The folder is there and is no bundle.
            ValueError: Weights are missing or have another shape or dtype; all of them are named.
            OSError: The weights cannot be read.
        """
        target = Path(directory).absolute()
        keys = WeightKeys(self._rules(target.parent / CONFIG_FILE), self.tied)
        with staged_folder(target) as folder:
            targets = self._conversions(keys, cache)
            if by_reference and targets:
                raise ValueError("weights by reference cannot be converted; leave out by_reference or dtype")
            weights = (
                place_reference(self.weights, cache) if by_reference else self._place(folder, keys, targets, cache)
            )
            self._check(weights, keys)
            self._write_graphs(folder, weights, keys)
            (folder / MANIFEST_FILE).write_text(self._manifest(folder, weights, targets).to_json(), encoding="utf-8")
        return open_bundle(target)

    def _rules(self, config: Path) -> dict[str, str]:
        # A rule that maps a name to itself says nothing, and must not hide a pattern.
        given = {name: key for name, key in self.rename.items() if name != key}
        return given | {name: key for name, key in load_config(config).rename.items() if name not in given}

    def _conversions(self, keys: WeightKeys, cache: Cache | None) -> dict[str, Conversion]:
        if self._dtype is None:
            return {}
        return find_conversions(self._specs, arrays_of(self.weights, cache), keys, self._dtype)

    def _place(
        self, folder: Path, keys: WeightKeys, targets: Mapping[str, Conversion], cache: Cache | None
    ) -> PlacedWeights:
        with stored_file(self.weights, cache) as file:
            if file and not targets:
                self._check(placed(open_safetensors(file)), keys)
                return place_file(file, folder)
        if isinstance(self.weights, Mapping) and not targets:
            return place_arrays(self.weights, folder)
        return place_arrays(Converted(arrays_of(self.weights, cache), targets), folder)

    def _check(self, weights: PlacedWeights, keys: WeightKeys) -> None:
        entries = {key: place.entry for key, place in weights.located.items()}
        faults = [
            fault if len(self.graphs) == 1 else f"graph {key!r}: {fault}"
            for key, part in self.graphs.items()
            for fault in find_faults(weight_specs(part.model), entries, keys, weights.values)
        ]
        if faults:
            raise ValueError(f"bundle {self.name!r} does not fit its weights: {'; '.join(faults)}")

    def _write_graphs(self, folder: Path, weights: PlacedWeights, keys: WeightKeys) -> None:
        for key, part in self.graphs.items():
            bound = bind_weights(part.model, weights.located, keys)
            (folder / _graph_file(key)).write_bytes(serialize_model(key, bound))

    def _manifest(self, folder: Path, weights: PlacedWeights, targets: Mapping[str, Conversion]) -> BundleManifest:
        here = {file.name: file_entry(file) for file in sorted(folder.iterdir())}
        files = sorted({place.file for place in weights.located.values()})
        return BundleManifest(
            name=self.name,
            graphs={key: GraphEntry(_graph_file(key), part.inputs, part.outputs) for key, part in self.graphs.items()},
            files=here | dict(weights.references),
            opset=max(_opsets(self.graphs), default=0),
            weights_file=files[0] if len(files) == 1 else None,
            tied=self.tied,
            converted={change.given.name: change.wanted.name for change in targets.values()},
            source=self.source,
            created_with={"tidemill": version("tidemill"), "onnx": onnx.__version__},
        )

    @property
    def _specs(self) -> dict[str, WeightSpec]:
        return {name: spec for part in self.graphs.values() for name, spec in weight_specs(part.model).items()}

    @property
    def _dtype(self) -> DType | None:
        return None if self.dtype is None else require_convertible(self.dtype)


def _graph_file(key: str) -> str:
    return "model.onnx" if key == MAIN_GRAPH else f"{key}.onnx"


def _opsets(graphs: Mapping[str, GraphPart]) -> Iterator[int]:
    for part in graphs.values():
        yield from (entry.version for entry in part.model.opset_import if entry.domain in ("", "ai.onnx"))
