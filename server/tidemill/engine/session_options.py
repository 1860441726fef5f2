"""How a session is set up, and that said in ONNX Runtime's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemill.engine.placement import RECORD_PLACEMENT
from tidemill.engine.providers import CPU_PROVIDER, CUDA_PROVIDER, TENSORRT_PROVIDER
from tidemill.engine.threads import available_threads

__all__ = ["SessionOptions", "ort_providers", "ort_run_options", "ort_session_options"]

_SILENT = 4  # ONNX Runtime's severity "fatal"; all else is raised as an error and need not be printed as well
_ON_DEVICE = (CUDA_PROVIDER, TENSORRT_PROVIDER)


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a session is set up.

    Attributes:
        providers: Full names in order of preference, see `resolve_providers`.
        threads: Threads of one run; 0 for as many as there are CPUs to use.
        prepack: Whether weights are copied into the layout that the kernels like best: faster for batches, but a
            private copy instead of pages that are shared with other processes.
        device: The number of the accelerator.
        custom_ops: Libraries with operators of the operator's own; native code, so never from a request.
        provider_options: Text by option by full provider name, see `check_provider_options`.
        allow_fallback: Whether a provider that cannot be started is done without, with a warning.
        shrink_above: Bytes of input; a run that is fed more gives the memory it took back to the system. 0 keeps all.
        weights_folder: Where the weights of a model lie that is given as bytes.
        optimized: Whether the model was optimised for this kind of CPU before, and is taken as it is.
    """

    providers: tuple[str, ...] = (CPU_PROVIDER,)
    threads: int = 0
    prepack: bool = True
    device: int = 0
    custom_ops: tuple[Path, ...] = ()
    provider_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    allow_fallback: bool = False
    shrink_above: int = 0
    weights_folder: Path | None = None
    optimized: bool = False


def ort_session_options(options: SessionOptions, runtime: Any) -> Any:
    """The options as an `onnxruntime.SessionOptions`."""
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = options.threads or available_threads()
    settings.inter_op_num_threads = 1
    settings.log_severity_level = _SILENT
    for key, value in _entries(options).items():
        settings.add_session_config_entry(key, value)
    if options.optimized:
        settings.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for library in options.custom_ops:
        settings.register_custom_ops_library(str(library))
    return settings


def _entries(options: SessionOptions) -> dict[str, str]:
    entries = {
        # Threads that spin while they wait take the CPU from every other model and from the event loop.
        "session.intra_op.allow_spinning": "0",
        "session.inter_op.allow_spinning": "0",
        RECORD_PLACEMENT: "1",
    }
    if not options.prepack:
        entries["session.disable_prepacking"] = "1"
    if options.weights_folder is not None:
        entries["session.model_external_initializers_file_folder_path"] = str(options.weights_folder)
    return entries


def ort_providers(providers: Sequence[str], options: SessionOptions) -> list[tuple[str, dict[str, str]]]:
    """The providers with their options, as `onnxruntime.InferenceSession` takes them."""
    place = {"device_id": str(options.device)}
    return [
        (name, (place if name in _ON_DEVICE else {}) | dict(options.provider_options.get(name, {})))
        for name in providers
    ]


def ort_run_options(runtime: Any, providers: Sequence[str], device: int) -> Any:
    """Run options that give the run's memory back when it is over."""
    arenas = ["cpu:0", *(f"gpu:{device}" for name in providers if name == CUDA_PROVIDER)]
    options = runtime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", ";".join(arenas))
    return options
