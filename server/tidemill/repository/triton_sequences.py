"""Triton's `sequence_batching` as the section `sequence`; knows no file."""

from __future__ import annotations

from typing import Any

__all__ = ["convert_sequences"]

_IDLE_MICROSECONDS = 1_000_000
"""Triton's default."""
_WAITING = 1024
"""Where Triton lets sequences wait for a place, it sets no limit."""
_KINDS = {
    "CONTROL_SEQUENCE_START": "start",
    "CONTROL_SEQUENCE_END": "end",
    "CONTROL_SEQUENCE_READY": "ready",
    "CONTROL_SEQUENCE_CORRID": "id",
}


def convert_sequences(batching: Any, outputs: set[str], fields: dict[str, Any]) -> list[str]:
    """Put the sections `sequence` and `batching` into the fields of model.yaml.

    Args:
        batching: A ModelSequenceBatching.
        outputs: The outputs that the configuration lists: of the states, those are shown to callers.
        fields: The fields.

    Returns:
        The parts that have no meaning here.
    """
    strategy = "oldest" if batching.WhichOneof("strategy_choice") == "oldest" else "direct"
    chosen = batching.oldest if strategy == "oldest" else batching.direct
    fields["sequence"] = {
        "strategy": strategy,
        "state": [_state(state, shown=state.output_name in outputs) for state in batching.state],
        "controls": [_control(control.name, one) for control in batching.control_input for one in control.control],
        "idle_timeout_microseconds": batching.max_sequence_idle_microseconds or _IDLE_MICROSECONDS,
        "max_waiting_sequences": _WAITING,
        **({"max_candidate_sequences": chosen.max_candidate_sequences or 1} if strategy == "oldest" else {}),
    }
    oldest = {
        "preferred_batch_size": list(batching.oldest.preferred_batch_size),
        "preserve_ordering": batching.oldest.preserve_ordering,
    }
    fields["batching"] = {
        "policy": "fixed",
        "max_queue_delay_microseconds": chosen.max_queue_delay_microseconds,
        **(oldest if strategy == "oldest" else {}),
    }
    unheeded = ["iterative_sequence"] if batching.iterative_sequence else []
    unheeded += ["direct.minimum_slot_utilization"] if batching.direct.minimum_slot_utilization else []
    return unheeded


def _state(state: Any, *, shown: bool) -> dict[str, Any]:
    field: dict[str, Any] = {"input": state.input_name, "output": state.output_name, "shown": shown}
    if state.initial_state:
        initial = state.initial_state[0]
        field["initial"] = initial.data_file or 0
        field["shape"] = list(initial.dims)
    elif -1 not in state.dims:
        field["shape"] = list(state.dims)
    else:  # Triton begins with as little as there can be
        field["shape"] = [1 if dim == -1 else dim for dim in state.dims]
    return field


def _control(name: str, control: Any) -> dict[str, Any]:
    values = control.int32_false_true or control.fp32_false_true or control.bool_false_true
    field: dict[str, Any] = {"input": name, "kind": _KINDS[control.Kind.Name(control.kind)]}
    return field | ({"values": [float(value) for value in values]} if values else {})
