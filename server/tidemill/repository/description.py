"""How a model is served, told in the field names of Triton's ModelConfig; knows no wire and reads no files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.batching.options import BatchingOptions, LevelOptions
from tidemill.bundle.config import ModelConfig, VersionPolicy
from tidemill.dtype import DType
from tidemill.protocol.types import TensorSpec
from tidemill.repository.described_sequences import describe_sequences
from tidemill.repository.running import RunningModel

__all__ = ["PLATFORM", "describe", "describe_tensors"]

PLATFORM = "onnxruntime_onnx"


def describe(
    name: str, tensors: tuple[Sequence[TensorSpec], Sequence[TensorSpec]], running: RunningModel, config: ModelConfig
) -> dict[str, Any]:
    """What Triton's ModelConfig has a field for, and under `parameters` what was found out at load.

    Args:
        name: The model.
        tensors: What callers send, and what they get.
        running: The loaded model.
        config: Its configuration.

    Returns:
        Plain values that protobuf's JSON reader takes; `dims` are without the batch axis if the model is batched.
    """
    options = running.plan.options
    most = options.max_batch_size
    described = {
        "name": name,
        "platform": PLATFORM,
        "backend": "onnxruntime",
        "version_policy": _version_policy(config.version_policy),
        "max_batch_size": most,
        **describe_tensors(*tensors, batched=most > 0, labels=config.labels),
        "instance_group": [_instance_group(name, running, options.instances)],
        "default_model_filename": "model.onnx",
        "model_transaction_policy": {"decoupled": False},
        "parameters": {key: {"string_value": value} for key, value in _findings(running, config).items()},
    }
    if config.sequence:
        return described | {"sequence_batching": describe_sequences(config.sequence, options, running)}
    return described | ({"dynamic_batching": _dynamic_batching(options)} if most else {})


def describe_tensors(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], *, batched: bool, labels: Mapping[str, str]
) -> dict[str, Any]:
    """The fields `input` and `output`.

    Args:
        inputs: What callers send.
        outputs: What callers get.
        batched: Whether axis 0 is left out.
        labels: The file of labels by output name.
    """
    return {
        "input": [_tensor(spec, batched=batched) | _INPUT_FIELDS for spec in inputs],
        "output": [
            _tensor(spec, batched=batched) | {"label_filename": labels.get(spec.name, "")} | _OUTPUT_FIELDS
            for spec in outputs
        ],
    }


_INPUT_FIELDS = {
    "format": "FORMAT_NONE",
    "is_shape_tensor": False,
    "allow_ragged_batch": False,
    "optional": False,
    "is_non_linear_format_io": False,
}
_OUTPUT_FIELDS = {"is_shape_tensor": False, "is_non_linear_format_io": False}


def _tensor(spec: TensorSpec, *, batched: bool) -> dict[str, Any]:
    dims = spec.wire_shape[1:] if batched else spec.wire_shape
    kind = "STRING" if spec.dtype is DType.string else spec.dtype.wire
    return {"name": spec.name, "data_type": f"TYPE_{kind}", "dims": dims}


def _version_policy(policy: VersionPolicy) -> dict[str, Any]:
    if policy.all:
        return {"all": {}}
    if policy.specific:
        return {"specific": {"versions": list(policy.specific)}}
    return {"latest": {"num_versions": policy.latest}}


def _instance_group(name: str, running: RunningModel, count: int) -> dict[str, Any]:
    on_device = any("CPU" not in provider for provider in running.instance.providers)
    return {"name": name, "kind": "KIND_GPU" if on_device else "KIND_CPU", "count": count, "gpus": []}


def _dynamic_batching(options: BatchingOptions) -> dict[str, Any]:
    return {
        "preferred_batch_size": list(options.preferred_batch_sizes or (options.max_batch_size,)),
        "max_queue_delay_microseconds": round(options.max_queue_delay * 1e6),
        "preserve_ordering": options.preserve_ordering,
        "priority_levels": options.priority_levels if options.priority_levels > 1 else 0,
        "default_priority_level": options.default_level if options.priority_levels > 1 else 0,
        "default_queue_policy": _queue_policy(options.level),
        "priority_queue_policy": {str(level): _queue_policy(queue) for level, queue in options.levels.items()},
    }


def _queue_policy(level: LevelOptions) -> dict[str, Any]:
    return {
        "timeout_action": "DELAY" if level.delays else "REJECT",
        "default_timeout_microseconds": round(level.timeout * 1e6),
        "allow_timeout_override": level.overridable,
        "max_queue_size": level.max_queue_size,
    }


def _findings(running: RunningModel, config: ModelConfig) -> Mapping[str, str]:
    plan, instance = running.plan, running.instance
    costs = plan.costs.points if plan.costs else {}
    milliseconds = {f"{rows}x{length}": round(seconds * 1e3, 2) for (rows, length), seconds in costs.items()}
    return {
        "tidemill.batched": f"{'yes' if plan.proof.batchable else 'no'}: {plan.proof.reason}",
        "tidemill.providers": ", ".join(instance.providers),
        "tidemill.nodes": str(instance.placement),
        "tidemill.artifact": instance.artifact,
        "tidemill.threads": str(instance.threads),
        "tidemill.policy": "cost" if plan.costs else "fixed",
        **({"tidemill.base": config.base} if config.base else {}),
        **({"tidemill.padding": plan.padding} if plan.padding else {}),
        **({"tidemill.run_milliseconds": str(milliseconds)} if milliseconds else {}),
    }
