"""Triton's config.pbtxt as a ModelConfig; what has no meaning here is named in the log, what cannot be kept refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidemill.bundle.config import ModelConfig, read_config
from tidemill.errors import ConfigError
from tidemill.protocol.messages import UnknownField, from_fields, from_text
from tidemill.repository.triton_ensembles import convert_ensemble, tensors_of
from tidemill.repository.triton_sequences import convert_sequences

__all__ = ["load_triton_config", "read_triton_config"]

_LOG = logging.getLogger("tidemill.repository")

_Fields = dict[str, Any]

_REFUSED = {
    "batch_input": "the server makes no such inputs",
    "batch_output": "the server makes no such outputs",
}
_ELSEWHERE = {"max_batch_size", "sequence_batching", "ensemble_scheduling"}
_CHECKED = {"name", "platform", "backend", "runtime", "model_transaction_policy", "default_model_filename"}


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
    fields |= _reshapes(message)
    if message.HasField("ensemble_scheduling"):
        fields |= convert_ensemble(message)
    else:
        fields["declared"] = tensors_of(message)
    unheeded = [name for name in given if name not in _CHECKED and name not in _CONVERSIONS and name not in _ELSEWHERE]
    if message.HasField("sequence_batching"):
        shown = {output.name for output in message.output}
        unheeded += _of("sequence_batching", convert_sequences(message.sequence_batching, shown, fields))
    for name, convert in _CONVERSIONS.items():
        if name in given:
            unheeded += _of(name, convert(given[name], fields))
    if unheeded:
        _LOG.warning("%s: this has no meaning here and is passed over: %s", source, ", ".join(sorted(set(unheeded))))
    return read_config(fields, source)


def _of(name: str, parts: list[str]) -> list[str]:
    return [f"{name}.{part}" for part in parts]


def _check(message: Any, source: str) -> None:
    kind = message.platform or message.backend or "onnxruntime"
    is_ensemble = message.HasField("ensemble_scheduling") and kind in ("ensemble", "onnxruntime")
    if not kind.startswith("onnxruntime") and not is_ensemble:
        raise ConfigError(f"{source}: the model is for {kind!r}; only ONNX models are served (backend: onnxruntime)")
    if message.default_model_filename not in ("", "model.onnx"):
        raise ConfigError(
            f"{source}: default_model_filename must be 'model.onnx', not {message.default_model_filename!r}"
        )
    if message.model_transaction_policy.decoupled:
        raise ConfigError(f"{source}: decoupled models are not offered: a request has one answer")


def _reshapes(message: Any) -> _Fields:
    found = {
        tensor.name: {
            "seen": list(tensor.dims),
            "model": list(tensor.reshape.shape),
            "batched": message.max_batch_size > 0,
        }
        for tensor in (*message.input, *message.output)
        if tensor.HasField("reshape")
    }
    return {"reshape": found} if found else {}


def _inputs(inputs: Any, _: _Fields) -> list[str]:
    unheeded = ("is_shape_tensor", "allow_ragged_batch", "optional", "is_non_linear_format_io")
    return [field.name for tensor in inputs for field, _ in tensor.ListFields() if field.name in unheeded]


def _response_cache(cache: Any, fields: _Fields) -> list[str]:
    fields["response_cache"] = {"enable": cache.enable}
    return []


def _warmup(warmups: Any, fields: _Fields) -> list[str]:
    batched = fields["max_batch_size"] > 0
    runs = [
        {name: [*([warmup.batch_size or 1] if batched else []), *tensor.dims] for name, tensor in warmup.inputs.items()}
        for warmup in warmups
        for _ in range(warmup.count or 1)
    ]
    if runs:
        fields["warmup"] = runs
    given = (tensor for warmup in warmups for tensor in warmup.inputs.values())
    return ["input_data_file"] if any(tensor.input_data_file for tensor in given) else []


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
    devices = {device for group in groups for device in group.gpus}
    known = {"name", "count", "kind"}
    if len(devices) == 1 and "KIND_CPU" not in kinds:
        fields["providers"] = ["cuda"]
        fields.setdefault("provider_options", {})["cuda"] = {"device_id": devices.pop()}
        known.add("gpus")
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
        fields.setdefault("provider_options", {})["tensorrt"] = options
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
    "input": _inputs,
    "output": _outputs,
    "version_policy": _version_policy,
    "instance_group": _instance_group,
    "dynamic_batching": _dynamic_batching,
    "optimization": _optimization,
    "parameters": _parameters,
    "model_warmup": _warmup,
    "response_cache": _response_cache,
}
"""Each puts what it is given into the fields of model.yaml, and returns the parts that have no meaning here."""
