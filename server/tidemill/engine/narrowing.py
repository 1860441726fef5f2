"""The ways to put a model's weights into fewer bits; each takes a flat graph with its weights inside and gives one."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tidemill.dtype import DType
from tidemill.engine.runtime import onnxruntime
from tidemill.errors import ConfigError

__all__ = ["KINDS", "narrow"]

_LARGE = 1 << 30  # bytes; from here on the tool is to write weights beside the graph, as protobuf ends at 2 GiB


def narrow(kind: str, model: Any) -> Any:
    """Put an ONNX model's weights into fewer bits.

    Args:
        kind: One of `KINDS`.
        model: A flat `onnx.ModelProto` with its weights inside; it may be changed.

    Returns:
        The model in its new form.

    Raises:
        ConfigError: The kind is unknown, or the model has nothing that this kind applies to.
    """
    if kind not in KINDS:
        raise ConfigError(f"unknown quantization {kind!r}; known are {', '.join(KINDS)}")
    onnxruntime()
    result = KINDS[kind](model)
    if result is None:
        raise ConfigError(f"{kind} changes nothing in this model: it has no large float32 weights of matrix products")
    return result


def _int8_dynamic(model: Any) -> Any | None:
    """Weights as int8 with a scale a column; activations are rounded anew in each run, by their own range.

    Of the 8 bits 7 are used: on CPUs without VNNI the sums of 8-bit products overflow in silence, and the same model
    would answer differently from machine to machine. Tables that rows are picked from stay as they are: they are
    mapped and not multiplied.
    """
    tools = import_module("onnxruntime.quantization")
    model.metadata_props.add(key="onnx.quant.pre_process", value="onnxruntime.quant")
    with TemporaryDirectory() as folder, _quiet():
        file = Path(folder) / "model.onnx"
        tools.quantize_dynamic(
            model,
            file,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            reduce_range=True,
            weight_type=tools.QuantType.QInt8,
            use_external_data_format=model.ByteSize() > _LARGE,
        )
        from tidemill.bundle.embedded import read_embedded

        result = read_embedded(file)
    return result if any(node.op_type == "MatMulInteger" for node in result.graph.node) else None


def _int4_blockwise(model: Any) -> Any | None:
    """Weights of matrix products in blocks of 32 4-bit values, each block with a scale and a zero point."""
    from tidemill.bundle.int4 import use_int4_blocks

    return model if use_int4_blocks(model) else None


def _float16(model: Any) -> Any | None:
    """Weights and arithmetic in float16; inputs and outputs keep their types."""
    tool = import_module("onnxruntime.transformers.float16")
    with _quiet():
        result = tool.convert_float_to_float16(model, keep_io_types=True)
    changed = any(tensor.data_type == DType.float16.onnx for tensor in result.graph.initializer)
    return result if changed else None


def _bfloat16(model: Any) -> Any | None:
    """Weights in bfloat16, widened before use: ONNX Runtime's CPU has no arithmetic in it."""
    from tidemill.bundle.half import store_as

    return model if store_as(model, DType.bfloat16) else None


KINDS: dict[str, Callable[[Any], Any | None]] = {
    "int8-dynamic": _int8_dynamic,
    "int4-blockwise": _int4_blockwise,
    "float16": _float16,
    "bfloat16": _bfloat16,
}
"""By the name that configurations use."""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The tools advise on the root logger and by warnings; what they do is measured afterwards."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.setLevel(before)
