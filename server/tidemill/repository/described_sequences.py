"""How a model's sequences are served, told in the field names of Triton's ModelConfig; knows no sequence."""

from __future__ import annotations

from typing import Any

from tidemill.batching.options import BatchingOptions
from tidemill.bundle.sequence_config import ControlConfig, SequenceConfig, StateConfig
from tidemill.dtype import DType
from tidemill.protocol.types import TensorSpec
from tidemill.repository.running import RunningModel

__all__ = ["describe_sequences"]

_KINDS = {
    "start": "CONTROL_SEQUENCE_START",
    "end": "CONTROL_SEQUENCE_END",
    "ready": "CONTROL_SEQUENCE_READY",
    "id": "CONTROL_SEQUENCE_CORRID",
}


def describe_sequences(config: SequenceConfig, options: BatchingOptions, running: RunningModel) -> dict[str, Any]:
    """The fields of a ModelSequenceBatching.

    Args:
        config: The section `sequence`.
        options: How requests of different sequences are joined.
        running: The loaded model.
    """
    specs = {spec.name: spec for spec in running.inputs}
    delay = round(options.max_queue_delay * 1e6)
    direct = {"direct": {"max_queue_delay_microseconds": delay}}
    oldest = {
        "max_candidate_sequences": config.max_candidate_sequences,
        "preferred_batch_size": list(options.preferred_batch_sizes),
        "max_queue_delay_microseconds": delay,
        "preserve_ordering": options.preserve_ordering,
    }
    return {
        "max_sequence_idle_microseconds": config.idle_timeout_microseconds,
        "control_input": [_control(control, specs[control.input]) for control in config.controls],
        "state": [_state(state, specs[state.input]) for state in config.state],
        **(direct if config.strategy == "direct" else {"oldest": oldest}),
    }


def _control(control: ControlConfig, spec: TensorSpec) -> dict[str, Any]:
    given: dict[str, Any] = {"kind": _KINDS[control.kind]}
    if control.kind == "id":
        given["data_type"] = _type(spec)
    elif spec.dtype is DType.bool:
        given["bool_false_true"] = [bool(value) for value in control.values]
    elif spec.dtype.is_float():
        given["fp32_false_true"] = list(control.values)
    else:
        given["int32_false_true"] = [int(value) for value in control.values]
    return {"name": control.input, "control": [given]}


def _state(state: StateConfig, spec: TensorSpec) -> dict[str, Any]:
    dims = spec.wire_shape[1:]
    initial: dict[str, Any] = {"name": state.input, "data_type": _type(spec), "dims": list(state.shape or dims)}
    initial |= {"data_file": state.initial} if isinstance(state.initial, str) else {"zero_data": not state.initial}
    return {
        "input_name": state.input,
        "output_name": state.output,
        "data_type": _type(spec),
        "dims": dims,
        "initial_state": [initial],
    }


def _type(spec: TensorSpec) -> str:
    return f"TYPE_{'STRING' if spec.dtype is DType.string else spec.dtype.wire}"
