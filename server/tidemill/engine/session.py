"""One ONNX Runtime session with a signature and numpy in and out; knows nothing of bundles, batches or requests."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tidemill.dtype import DType
from tidemill.engine.conversion import decode_strings, encode_strings, from_ort_value, is_native, to_ort_value
from tidemill.engine.failure import explain_run
from tidemill.engine.providers import CPU_PROVIDER, check_available, check_providers
from tidemill.engine.runtime import onnxruntime, warn_of_conflicts
from tidemill.engine.threads import available_threads
from tidemill.errors import LoadFailed
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["OrtSession", "SessionOptions", "open_session"]

_SILENT = 4  # ONNX Runtime's severity "fatal"; all else is raised as an error and need not be printed as well


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
    """

    providers: tuple[str, ...] = (CPU_PROVIDER,)
    threads: int = 0
    prepack: bool = True
    device: int = 0
    custom_ops: tuple[Path, ...] = ()


class OrtSession:
    """A loaded model; safe to run from several threads at once."""

    def __init__(self, session: Any, options: SessionOptions) -> None:
        self._session = session
        self.inputs = tuple(_spec(node) for node in session.get_inputs())
        self.outputs = tuple(_spec(node) for node in session.get_outputs())
        self.providers = tuple(session.get_providers())
        self.threads = options.threads or available_threads()
        self._names = [spec.name for spec in self.outputs]
        self._inputs = {spec.name: spec.dtype for spec in self.inputs}
        self._gives_arrays = all(is_native(spec.dtype) for spec in self.outputs)
        if not self._gives_arrays and DType.string in self._inputs.values():
            raise LoadFailed("ONNX Runtime's Python API cannot run a model with BYTES inputs and BF16 or FP8 outputs")

    def run(self, feed: Mapping[str, Array], weights: Mapping[str, Any] | None = None) -> dict[str, Array]:
        """Run the model once.

        Args:
            feed: Arrays by input name that fit the signature (see `protocol.signature.check_inputs`: ONNX Runtime
                does not check that equal symbols agree). BYTES inputs are object arrays of `bytes`.
            weights: OrtValues for inputs that stay the same from run to run.

        Returns:
            Fresh arrays by output name.

        Raises:
            InvalidArgument: The feed does not fit, or a BYTES element is not UTF-8.
            UnprocessableInput: A kernel cannot compute with these values.
            InferenceFailed: The run broke.
        """
        prepared = {name: self._prepare(name, array) for name, array in feed.items()} | dict(weights or {})
        try:
            arrays = self._run_arrays(prepared) if self._gives_arrays else self._run_values(prepared)
        except Exception as error:  # ONNX Runtime's classes have no common base
            raise explain_run(error) from error
        return {
            spec.name: encode_strings(array) if spec.dtype is DType.string else array
            for spec, array in zip(self.outputs, arrays, strict=True)
        }

    def _prepare(self, name: str, array: Array) -> Any:
        """What `run` of ONNX Runtime takes: an array, or an OrtValue for dtypes that numpy does not have."""
        if self._inputs.get(name) is DType.string:
            return decode_strings(name, array)
        if not array.dtype.isnative:  # ONNX Runtime would read the bytes as if they were in this machine's order
            return array.astype(array.dtype.newbyteorder("="))
        return array if array.dtype.isbuiltin == 1 else to_ort_value(array)

    def _run_arrays(self, feed: dict[str, Any]) -> Sequence[Array]:
        arrays: Sequence[Array] = self._session.run(self._names, feed) if self._names else ()
        return arrays

    def _run_values(self, feed: dict[str, Any]) -> Sequence[Array]:
        given = {name: to_ort_value(value) if isinstance(value, np.ndarray) else value for name, value in feed.items()}
        values = self._session.run_with_ort_values(self._names, given)
        return [from_ort_value(value, spec.dtype) for value, spec in zip(values, self.outputs, strict=True)]


def open_session(model: Path | bytes, options: SessionOptions) -> OrtSession:
    """Load an ONNX model.

    Args:
        model: Its file, so that weights beside it are mapped into memory, or the bytes of a small one.
        options: How to set it up.

    Raises:
        LoadFailed: ONNX Runtime refuses it, or would not run it on the providers asked for.
    """
    runtime = onnxruntime()
    warn_of_conflicts()
    check_available(options.providers, runtime.get_available_providers())
    _prepare_libraries(runtime, options)
    source = model if isinstance(model, bytes) else str(model)
    try:
        session = runtime.InferenceSession(
            source, _to_ort(options, runtime), providers=_with_device(options), enable_fallback=0
        )
        session.disable_fallback()
    except Exception as error:  # ONNX Runtime's classes have no common base
        raise LoadFailed(f"ONNX Runtime cannot load {_named(model)}: {error}") from error
    check_providers(session.get_providers(), options.providers)
    return OrtSession(session, options)


def _to_ort(options: SessionOptions, runtime: Any) -> Any:
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = options.threads or available_threads()
    settings.inter_op_num_threads = 1
    settings.log_severity_level = _SILENT
    # Threads that spin while they wait take the CPU from every other model and from the event loop.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    settings.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if not options.prepack:
        settings.add_session_config_entry("session.disable_prepacking", "1")
    for library in options.custom_ops:
        settings.register_custom_ops_library(str(library))
    return settings


def _with_device(options: SessionOptions) -> list[tuple[str, dict[str, str]]]:
    place = {"device_id": str(options.device)}
    return [(name, {} if name == CPU_PROVIDER else place) for name in options.providers]


def _prepare_libraries(runtime: Any, options: SessionOptions) -> None:
    runtime.disable_telemetry_events()
    if options.providers != (CPU_PROVIDER,):
        # It prints what it does not find; what is really missing is reported by check_providers.
        with contextlib.redirect_stdout(io.StringIO()):
            runtime.preload_dlls()


def _spec(node: Any) -> TensorSpec:
    return TensorSpec(node.name, _dtype(node), tuple(dim if isinstance(dim, int) else dim or "" for dim in node.shape))


def _dtype(node: Any) -> DType:
    kind = str(node.type).removeprefix("tensor(").removesuffix(")")
    name = _DTYPE_NAMES.get(kind, kind.replace("float8", "float8_"))
    try:
        return DType[name]
    except KeyError:
        raise LoadFailed(f"{node.name!r} is a {node.type}, which cannot be an input or output of a model") from None


_DTYPE_NAMES = {"float": "float32", "double": "float64"}


def _named(model: Path | bytes) -> str:
    return "the model" if isinstance(model, bytes) else str(model)
