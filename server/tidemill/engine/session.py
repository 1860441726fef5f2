"""One ONNX Runtime session with a signature and numpy in and out; knows nothing of bundles, batches or requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tidemill.dtype import DType
from tidemill.engine.conversion import decode_strings, encode_strings, from_ort_value, is_native, to_ort_value
from tidemill.engine.failure import explain_run
from tidemill.engine.placement import Placement, read_placement
from tidemill.engine.preload import preload
from tidemill.engine.providers import check_available, check_providers
from tidemill.engine.runtime import onnxruntime, warn_of_conflicts
from tidemill.engine.session_options import SessionOptions, ort_providers, ort_run_options, ort_session_options
from tidemill.engine.threads import available_threads
from tidemill.errors import LoadFailed
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["Cancel", "OrtSession", "SessionOptions", "open_session"]


class Cancel(Protocol):
    """How a run that is not wanted any more is told to end."""

    def attach(self, stop: Callable[[], None]) -> None:
        """Take over what ends the run between two of its nodes; it may be called from any thread."""


class OrtSession:
    """A loaded model; safe to run from several threads at once."""

    def __init__(self, session: Any, options: SessionOptions) -> None:
        self._session = session
        self.inputs = tuple(_spec(node) for node in session.get_inputs())
        self.outputs = tuple(_spec(node) for node in session.get_outputs())
        self.providers = tuple(session.get_providers())
        self.threads = options.threads or available_threads()
        self._shrink_above = options.shrink_above
        self._run_options = partial(ort_run_options, onnxruntime(), self.providers, options.device)
        self._shrinking = self._run_options()
        self._names = [spec.name for spec in self.outputs]
        self._inputs = {spec.name: spec.dtype for spec in self.inputs}
        self._gives_arrays = all(is_native(spec.dtype) for spec in self.outputs)
        if not self._gives_arrays and DType.string in self._inputs.values():
            raise LoadFailed("ONNX Runtime's Python API cannot run a model with BYTES inputs and BF16 or FP8 outputs")
        dtypes = {*self._inputs.values(), *(spec.dtype for spec in self.outputs)}
        self._is_plain = DType.string not in dtypes and all(map(is_native, dtypes))

    @cached_property
    def placement(self) -> Placement:
        """How many nodes each provider executes; counted when first asked for, as a large graph takes its time."""
        return read_placement(self._session)

    def binding(self) -> Any:
        """A new `onnxruntime.IOBinding`: the caller's memory, for a run to read from and to write to."""
        return self._session.io_binding()

    def run_bound(self, binding: Any) -> None:
        """Run the model once over a binding.

        Raises:
            InvalidArgument, UnprocessableInput, InferenceFailed: As `run` does.
        """
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:  # ONNX Runtime's classes have no common base
            raise explain_run(error) from error

    def run(
        self, feed: Mapping[str, Array], weights: Mapping[str, Any] | None = None, cancel: Cancel | None = None
    ) -> dict[str, Array]:
        """Run the model once.

        Args:
            feed: Arrays by input name that fit the signature (see `protocol.signature.check_inputs`: ONNX Runtime
                does not check that equal symbols agree). BYTES inputs are object arrays of `bytes`.
            weights: OrtValues for inputs that stay the same from run to run.
            cancel: Given what ends the run early; None if it runs to its end.

        Returns:
            Fresh arrays by output name.

        Raises:
            InvalidArgument: The feed does not fit, or a BYTES element is not UTF-8.
            UnprocessableInput: A kernel cannot compute with these values.
            InferenceFailed: The run broke.
        """
        plain = self._is_plain and not weights and all(array.dtype.isnative for array in feed.values())
        prepared = feed if plain else {name: self._prepare(name, array) for name, array in feed.items()}
        options = self._options(feed, cancel) if cancel or self._shrink_above else None
        try:
            arrays = self._run_prepared({**prepared, **weights} if weights else prepared, options)
        except Exception as error:  # ONNX Runtime's classes have no common base
            raise explain_run(error) from error
        return dict(zip(self._names, arrays, strict=True)) if plain else self._given_back(arrays)

    def _given_back(self, arrays: Sequence[Array]) -> dict[str, Array]:
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

    def _options(self, feed: Mapping[str, Array], cancel: Cancel | None) -> Any:
        """Nothing, or for a large run that it gives its memory back: what one run took, ONNX Runtime keeps."""
        shrinks = self._shrink_above and sum(array.nbytes for array in feed.values()) > self._shrink_above
        if cancel is None:
            return self._shrinking if shrinks else None
        # Options that were terminated stay so: each run that may be has its own.
        options = self._run_options() if shrinks else onnxruntime().RunOptions()
        cancel.attach(partial(setattr, options, "terminate", True))
        return options

    def _run_prepared(self, feed: Mapping[str, Any], options: Any) -> Sequence[Array]:
        if self._gives_arrays:
            arrays: Sequence[Array] = self._session.run(self._names, feed, options) if self._names else ()
            return arrays
        given = {name: to_ort_value(value) if isinstance(value, np.ndarray) else value for name, value in feed.items()}
        values = self._session.run_with_ort_values(self._names, given, options)
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
    available = runtime.get_available_providers()
    providers = check_available(options.providers, available, allow_fallback=options.allow_fallback)
    runtime.disable_telemetry_events()
    preload(runtime, providers)
    source = model if isinstance(model, bytes) else str(model)
    try:
        settings = ort_session_options(options, runtime)
        chain = ort_providers(providers, options)
        session = runtime.InferenceSession(source, settings, providers=chain, enable_fallback=0)
        session.disable_fallback()
    except Exception as error:  # ONNX Runtime's classes have no common base
        raise LoadFailed(f"ONNX Runtime cannot load {_named(model)}: {error}") from error
    check_providers(session.get_providers(), providers, allow_fallback=options.allow_fallback)
    return OrtSession(session, options)


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
