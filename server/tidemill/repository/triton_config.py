"""Triton's config.pbtxt as a ModelConfig; what has no meaning here is named in the log, what cannot be kept refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidemill.bundle.config import ModelConfig, read_config
from tidemill.errors import ConfigError
from tidemill.protocol.messages import UnknownField, from_fields, from_text

__all__ = ["load_triton_config", "read_triton_config"]

_LOG = logging.getLogger("tidemill.repository")

_Fields = dict[str, Any]

_REFUSED = {
    "sequence_batching": "the server keeps no state between requests",
    "ensemble_scheduling": "the server runs no pipelines of models",
    "batch_input": "the server makes no such inputs",
    "batch_output": "the server makes no such outputs",
}
_CHECKED = {"name", "platform", "backend", "input", "runtime", "model_transaction_policy", "default_model_filename"}


def load_triton_config(path: Path) -> ModelConfig:
    """Read a config.pbtxt.

    Raises:
        ConfigError: It is not in protobuf's text format, or asks for what the server cannot do.
    """
    try:
        message = _parse(path.read_text(encoding="utf-8"), path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is no model configuration of Triton's: {error}") from None
    if message.name and message.name != path.parent.name:
        raise ConfigError(f"{path}: the name is {message.name!r}, expected that of its folder, {path.parent.name!r}")
    return _converted(message, str(path))


def read_triton_config(fields: Mapping[str, Any]) -> ModelConfig:
    """Take over a ModelConfig that was written as JSON.

    Raises:
        ConfigError: A field is unknown, or asks for what the server cannot do.
    """
    source = "the config of the load request"
    try:
        message = from_fields("ModelConfig", fields)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from None
    return _converted(message, source)


def _parse(text: str, path: Path) -> Any:
    try:
        return from_text("ModelConfig", text)
    except UnknownField as error:
        _LOG.warning("%s: fields that are not known here are passed over, such as: %s", path, error)
        return from_text("ModelConfig", text, allow_unknown=True)


def _converted(message: Any, source: str) -> ModelConfig:
    given = {descriptor.name: value for descriptor, value in message.ListFields()}
    for name, reason in _REFUSED.items():
        if name in given:
            raise ConfigError(f"{source}: {name} is not offered: {reason}")
    _check(message, source)
    fields: _Fields = {"max_batch_size": message.max_batch_size}
    unheeded = [
        name for name in given if name not in _CHECKED and name not in _CONVERSIONS and name != "max_batch_size"
    ]
    for name, convert in _CONVERSIONS.items():
        if name in given:
            unheeded += [f"{name}.{part}" for part in convert(given[name], fields)]
    if unheeded:
        _LOG.warning("%s: this has no meaning here and is passed over: %s", source, ", ".join(sorted(set(unheeded))))
    return read_config(fields, source)


def _check(message: Any, source: str) -> None:
    kind = message.platform or message.backend or "onnxruntime"
    if not kind.startswith("onnxruntime"):
        raise ConfigError(f"{source}: the model is for {kind!r}; only ONNX models are served (backend: onnxruntime)")
    if message.default_model_filename not in ("", "model.onnx"):
        raise ConfigError(
            f"{source}: default_model_filename must be 'model.onnx', not {message.default_model_filename!r}"
        )
    if message.model_transaction_policy.decoupled:
        raise ConfigError(f"{source}: decoupled models are not offered: a request has one answer")
    for tensor in (*message.input, *message.output):
        if tensor.HasField("reshape"):
            raise ConfigError(f"{source}: reshape of {tensor.name!r} is not offered; export the model with that shape")


def _outputs(outputs: Any, fields: _Fields) -> list[str]:
    labels = {output.name: output.label_filename for output in outputs if output.label_filename}
    if labels:
        fields["labels"] = labels
    return []


def _version_policy(policy: Any, fields: _Fields) -> list[str]:
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        fields["version_policy"] = {"all": True}
    elif choice == "specific":
        fields["version_policy"] = {"specific": list(policy.specific.versions)}
    else:
        fields["version_policy"] = {"latest": policy.latest.num_versions or 1}
    return []


def _instance_group(groups: Any, fields: _Fields) -> list[str]:
    fields["instances"] = sum(group.count or 1 for group in groups)
    kinds = {group.Kind.Name(group.kind) for group in groups}
    if "KIND_GPU" in kinds:
        fields["providers"] = ["cuda"]
    known = {"name", "count", "kind"}
    return [field.name for group in groups for field, _ in group.ListFields() if field.name not in known]


def _dynamic_batching(batching: Any, fields: _Fields) -> list[str]:
    fields["batching"] = {
        "policy": "fixed",
        "preferred_batch_size": list(batching.preferred_batch_size),
        "max_queue_delay_microseconds": batching.max_queue_delay_microseconds,
        "preserve_ordering": batching.preserve_ordering,
        "priority_levels": batching.priority_levels or 1,
        "default_priority_level": batching.default_priority_level or 1,
        "priorities": {level: _queue(policy) for level, policy in batching.priority_queue_policy.items()},
        **(_queue(batching.default_queue_policy) if batching.HasField("default_queue_policy") else {}),
    }
    return []


def _queue(policy: Any) -> _Fields:
    return {
        "max_queue_size": policy.max_queue_size,
        "default_timeout_microseconds": policy.default_timeout_microseconds,
        "timeout_action": policy.TimeoutAction.Name(policy.timeout_action).lower(),
        "allow_timeout_override": policy.allow_timeout_override,
    }


def _optimization(optimization: Any, fields: _Fields) -> list[str]:
    accelerators = optimization.execution_accelerators
    unheeded = [field.name for field, _ in optimization.ListFields() if field.name != "execution_accelerators"]
    unheeded += [f"cpu_execution_accelerator {one.name}" for one in accelerators.cpu_execution_accelerator]
    for accelerator in accelerators.gpu_execution_accelerator:
        if accelerator.name == "tensorrt":
            fields["providers"] = ["tensorrt", "cuda"]
            unheeded += _tensorrt(accelerator.parameters, fields)
        else:
            unheeded.append(f"gpu_execution_accelerator {accelerator.name}")
    return unheeded


def _tensorrt(parameters: Mapping[str, str], fields: _Fields) -> list[str]:
    options: _Fields = {}
    unheeded = []
    for name, value in parameters.items():
        if name == "precision_mode" and value in ("FP16", "INT8"):
            options[f"trt_{value.lower()}_enable"] = True
        elif name == "max_workspace_size_bytes":
            options["trt_max_workspace_size"] = int(value)
        elif (name, value) != ("precision_mode", "FP32"):
            unheeded.append(f"tensorrt.{name}")
    if options:
        fields["provider_options"] = {"tensorrt": options}
    return unheeded


def _parameters(parameters: Any, fields: _Fields) -> list[str]:
    unheeded = []
    for name, parameter in parameters.items():
        if name == "intra_op_thread_count" and parameter.string_value.isdecimal():
            fields["threads"] = int(parameter.string_value) or None
        else:
            unheeded.append(name)
    return unheeded


_CONVERSIONS: dict[str, Callable[[Any, _Fields], list[str]]] = {
    "output": _outputs,
    "version_policy": _version_policy,
    "instance_group": _instance_group,
    "dynamic_batching": _dynamic_batching,
    "optimization": _optimization,
    "parameters": _parameters,
}
"""Each puts what it is given into the fields of model.yaml, and returns the parts that have no meaning here."""
