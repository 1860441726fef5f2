"""Loads traced graphs to be called from Python; the API of `max.engine.InferenceSession` over ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from tidemill.driver.device import CPU, Device
from tidemill.engine.model import Model
from tidemill.engine.providers import resolve_providers
from tidemill.engine.registry import bind_weights, did_you_mean
from tidemill.engine.session import SessionOptions, open_session
from tidemill.engine.traced import TracedGraph, TracedModule

__all__ = ["InferenceSession"]

_Paths = Iterable[str | PathLike[str]]


class InferenceSession:
    """Where models run and with how many threads.

        model = InferenceSession().load(graph, weights_registry=module.state_dict())

    Args:
        devices: `CPU()` or `Accelerator(id)`; the host if empty. With an accelerator, what it cannot run runs on the
            host.
        num_threads: Threads of one run; as many as there are CPUs to use if not given.
    """

    def __init__(self, devices: Iterable[Device] = (), num_threads: int | None = None) -> None:
        self.devices = tuple(devices) or (CPU(),)
        self.num_threads = num_threads

    def load(
        self,
        graph: TracedGraph,
        weights_registry: Mapping[str, Any] | None = None,
        custom_extensions: _Paths = (),
    ) -> Model:
        """Compile a graph.

        Args:
            graph: The traced graph.
            weights_registry: Arrays by weight name, used without a copy; more than the graph uses are fine.
            custom_extensions: Libraries with ONNX Runtime operators (.so).

        Raises:
            ValueError: A weight is missing or does not fit, or an extension is no library.
            LoadFailed: ONNX Runtime refuses the graph or cannot run it on the devices.
        """
        weights = bind_weights(graph.weight_specs, weights_registry or {})
        session = open_session(graph.to_model_bytes(), self._options(custom_extensions))
        return Model(graph, session, self.devices, weights)

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

    def _options(self, custom_extensions: _Paths) -> SessionOptions:
        accelerator = next((device for device in self.devices if not device.is_host), None)
        return SessionOptions(
            providers=resolve_providers(["cuda" if accelerator else "cpu"]),
            threads=self.num_threads or 0,
            device=accelerator.id if accelerator else 0,
            custom_ops=tuple(_library(path) for path in custom_extensions),
        )


def _check_complete(name: str, graph: TracedGraph, registry: Mapping[str, Any]) -> None:
    for weight in graph.weight_specs:
        if weight not in registry:
            raise ValueError(
                f"setup for model {name} returned error: unable to look up weight by name: {weight}"
                f"{did_you_mean(weight, registry)}"
            )


def _library(path: str | PathLike[str]) -> Path:
    library = Path(path)
    if library.suffix in (".mojo", ".mojopkg"):
        raise ValueError(f"{library} is Mojo, which only MAX runs; give a library with ONNX Runtime operators (.so)")
    return library
