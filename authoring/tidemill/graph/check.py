"""Whether an ONNX model is well formed: what every export must pass."""

from __future__ import annotations

import onnx

__all__ = ["check_model"]


def check_model(model: onnx.ModelProto | str) -> None:
    """Run onnx's checker with shape inference.

    Args:
        model: A model with its data, or the path of one whose data lies beside it.

    Raises:
        ValueError: The model is not valid; the message is the checker's.
    """
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ValueError(f"the exported model is not valid ONNX: {error}") from error
