"""How a generator is served, told in the field names of Triton's ModelConfig; knows no wire and reads no files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.bundle.config import ModelConfig
from tidemill.protocol.types import TensorSpec
from tidemill.repository.description import describe_tensors
from tidemill.repository.text_model import TextModel

__all__ = ["GENERATOR_PLATFORM", "describe_generator"]

GENERATOR_PLATFORM = "tidemill_generation"


def describe_generator(
    name: str, tensors: tuple[Sequence[TensorSpec], Sequence[TensorSpec]], model: TextModel, config: ModelConfig
) -> dict[str, Any]:
    """What Triton's ModelConfig has a field for, and under `parameters` what was found out at load.

    Args:
        name: The model.
        tensors: What callers send, and what they get.
        model: The loaded model.
        config: Its configuration.

    Returns:
        Plain values that protobuf's JSON reader takes.
    """
    generation, options = model.config, model.options
    found = {
        "tidemill.slots": str(generation.slots),
        "tidemill.capacity": str(generation.capacity),
        "tidemill.cache_bytes": str(generation.slots * model.row_bytes),
        "tidemill.chunk": str(options.chunk),
        "tidemill.providers": ", ".join(model.instance.providers),
        "tidemill.nodes": str(model.instance.placement),
        "tidemill.artifact": model.instance.artifact,
        "tidemill.threads": str(model.instance.threads),
        "tidemill.talks": "yes" if model.template else "no",
    }
    return {
        "name": name,
        "platform": GENERATOR_PLATFORM,
        "backend": "tidemill",
        "max_batch_size": 0,
        **describe_tensors(*tensors, batched=False, labels=config.labels),
        "instance_group": [{"name": name, "kind": "KIND_CPU", "count": 1, "gpus": []}],
        "default_model_filename": "model.onnx",
        "model_transaction_policy": {"decoupled": True},
        "parameters": {key: {"string_value": value} for key, value in found.items()},
    }
