"""Loads traced graphs to be called from Python; the API of `max.engine.InferenceSession` over ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, TypeAlias

from tidemill.driver.device import CPU, Device
from tidemill.engine.custom_ops import resolve_libraries
from tidemill.engine.exports import Exports
from tidemill.engine.model import Model
from tidemill.engine.providers import resolve_providers
from tidemill.engine.registry import bind_weights, did_you_mean
from tidemill.engine.session import open_session
from tidemill.engine.session_options import SessionOptions
from tidemill.engine.traced import TracedGraph, TracedModule

__all__ = ["InferenceSession"]

_Path: TypeAlias = str | PathLike[str]
_Paths: TypeAlias = Iterable[_Path]


class InferenceSession:
    """Where models run and with how many threads.

        model = InferenceSession().load(graph, weights_registry=module.state_dict())

    Args:
        devices: `CPU()` or `Accelerator(id)`; the host if empty. With an accelerator, what it cannot run runs on the
            host.
        num_threads: Threads of one run; as many as there are CPUs to use if not given.
        custom_extensions: Libraries with ONNX Runtime operators for every graph, native code that loading runs.
        precompiled: A folder that another session exported to. Graphs are taken from it and never compiled.
        export: A folder that gets the compiled form of every graph that is loaded.

    Raises:
        ValueError: `precompiled` and `export` are both given, or an extension is no library for this machine.
    """

    def __init__(
        self,
        devices: Iterable[Device] = (),
        num_threads: int | None = None,
        *,
        custom_extensions: _Paths = (),
        precompiled: _Path | None = None,
        export: _Path | None = None,
    ) -> None:
        if precompiled is not None and export is not None:
            raise ValueError("a session either takes compiled graphs (precompiled=) or writes them (export=), not both")
        self.devices = tuple(devices) or (CPU(),)
        self.num_threads = num_threads
        self.custom_extensions = resolve_libraries(custom_extensions)
        self._precompiled = None if precompiled is None else Exports.at(precompiled)
        self._export = None if export is None else Exports.at(export)

    def load(
        self,
        graph: TracedGraph,
        weights_registry: Mapping[str, Any] | None = None,
        custom_extensions: _Paths = (),
    ) -> Model:
        """Compile a graph, or take it from the session's precompiled ones.

        Args:
            graph: The traced graph.
            weights_registry: Arrays by weight name, used without a copy on the host; more than the graph uses are fine.
            custom_extensions: Libraries with ONNX Runtime operators (.so), besides those of the session and graph.

        Raises:
            ValueError: A weight is missing or does not fit, or an extension is no library for this machine.
            MissingArtifact: The session takes precompiled graphs, and this one is not among them.
            LoadFailed: ONNX Runtime refuses the graph or cannot run it on the devices.
        """
        weights = bind_weights(graph.weight_specs, weights_registry or {}, self.devices[0])
        options = self._options((*self.custom_extensions, *graph.custom_extensions, *custom_extensions))
        return Model(graph, open_session(self._compiled(graph, options), options), self.devices, weights)

    def load_all(
        self,
        module: TracedModule,
        weights_registry: Mapping[str, Any] | None = None,
        custom_extensions: _Paths = (),
    ) -> dict[str, Model]:
        """Compile all graphs of a module with one registry; returns models by graph name. Raises as `load`."""
        registry, extensions = weights_registry or {}, tuple(custom_extensions)
        for name, graph in module.graphs.items():
            _check_complete(name, graph, registry)
        return {name: self.load(graph, registry, extensions) for name, graph in module.graphs.items()}

    def _compiled(self, graph: TracedGraph, options: SessionOptions) -> bytes:
        model = graph.to_model_bytes()
        if self._precompiled is not None:
            return self._precompiled.read(graph.name, model)
        return model if self._export is None else self._export.write(graph.name, model, options)

    def _options(self, custom_extensions: _Paths) -> SessionOptions:
        accelerator = next((device for device in self.devices if not device.is_host), None)
        return SessionOptions(
            providers=resolve_providers(["cuda" if accelerator else "cpu"]),
            threads=self.num_threads or 0,
            device=accelerator.id if accelerator else 0,
            custom_ops=resolve_libraries(custom_extensions),
        )


def _check_complete(name: str, graph: TracedGraph, registry: Mapping[str, Any]) -> None:
    for weight in graph.weight_specs:
        if weight not in registry:
            raise ValueError(
                f"setup for model {name} returned error: unable to look up weight by name: {weight}"
                f"{did_you_mean(weight, registry)}"
            )
