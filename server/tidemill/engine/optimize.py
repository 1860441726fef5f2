"""A graph as ONNX Runtime's optimiser leaves it, with its weights still in the files where they were."""

from __future__ import annotations

from typing import Any

from tidemill.engine.providers import CPU_PROVIDER
from tidemill.engine.runtime import onnxruntime
from tidemill.engine.session_options import SessionOptions, ort_session_options
from tidemill.errors import LoadFailed, Unsupported

__all__ = ["optimize"]


def optimize(model: bytes, options: SessionOptions, *, for_this_cpu: bool) -> bytes:
    """Optimise a serialised model.

    Args:
        model: The model; external weights are relative to `options.weights_folder`.
        options: Those of the session that will load the result.
        for_this_cpu: Whether to do all there is, blocked layouts of convolutions included. The result is then for CPUs
            of this kind, and to be loaded with `SessionOptions.optimized`. Otherwise any CPU takes it, and the session
            does the rest.

    Returns:
        The serialised result. Weights that were external still are; what was computed from weights is inside.

    Raises:
        Unsupported: It is for other providers than the CPU.
        LoadFailed: ONNX Runtime refuses the model, or the result is over protobuf's limit of 2 GiB.
    """
    if options.providers != (CPU_PROVIDER,):
        raise Unsupported(f"models are compiled ahead of time for the CPU only, not for {', '.join(options.providers)}")
    runtime = onnxruntime()
    levels = runtime.GraphOptimizationLevel
    try:
        compiler = runtime.ModelCompiler(
            ort_session_options(options, runtime),
            model,
            graph_optimization_level=levels.ORT_ENABLE_ALL if for_this_cpu else levels.ORT_ENABLE_EXTENDED,
            get_initializer_location_func=_where_it_was,
        )
        compiled: bytes = compiler.compile_to_bytes()
    except Exception as error:  # ONNX Runtime's classes have no common base
        raise LoadFailed(f"ONNX Runtime cannot compile the model ahead of time: {error}") from error
    return compiled


def _where_it_was(name: str, value: Any, place: Any) -> Any:  # noqa: ARG001 - the signature is ONNX Runtime's
    return place
