"""Triton's `ensemble_scheduling` as the section `ensemble`; knows no file."""

from __future__ import annotations

from typing import Any

__all__ = ["convert_ensemble", "tensors_of"]


def convert_ensemble(message: Any) -> dict[str, Any]:
    """The section `ensemble` of model.yaml.

    Args:
        message: A ModelConfig with `ensemble_scheduling`; its inputs and outputs are compared with the members'.
    """
    return {
        "ensemble": {
            "steps": [
                {
                    "model": step.model_name,
                    "version": step.model_version if step.model_version > 0 else None,
                    "inputs": dict(step.input_map),
                    "outputs": dict(step.output_map),
                }
                for step in message.ensemble_scheduling.step
            ],
            **tensors_of(message),
        }
    }


def tensors_of(message: Any) -> dict[str, Any]:
    """The fields `inputs` and `outputs`: names, types and shapes with the batch axis."""
    batched = message.max_batch_size > 0
    return {
        "inputs": [_tensor(tensor, batched) for tensor in message.input],
        "outputs": [_tensor(tensor, batched) for tensor in message.output],
    }


def _tensor(tensor: Any, batched: bool) -> dict[str, Any]:
    kind = type(tensor).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[tensor.data_type].name
    datatype = kind.removeprefix("TYPE_")
    return {
        "name": tensor.name,
        "datatype": {"STRING": "BYTES", "INVALID": None}.get(datatype, datatype),
        "shape": [*([-1] if batched else []), *tensor.dims] if tensor.dims else None,
    }
