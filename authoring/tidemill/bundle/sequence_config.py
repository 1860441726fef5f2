"""The section `sequence` of model.yaml: what a model hands from one request to the next; knows no server."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tidemill.bundle.section import Count, CountOrZero, Section

__all__ = ["ControlConfig", "SequenceConfig", "StateConfig"]


class StateConfig(Section):
    """One tensor that the server keeps between the requests of a sequence.

    Attributes:
        input: The model's input that takes it.
        output: The model's output that it is taken from.
        initial: What it is filled with at first, or a file below `initial_state` that holds its raw bytes.
        shape: Its sizes at first, without the batch axis; None as the model declares them.
        shown: Whether callers get the output too.
    """

    input: str
    output: str
    initial: bool | int | float | str = 0
    shape: tuple[CountOrZero, ...] | None = None
    shown: bool = False


class ControlConfig(Section):
    """An input by which the model is told where in its sequence a request is.

    Attributes:
        input: The model's input.
        kind: What it is told: the first request, the last one, that there is one, or the sequence's id.
        values: What stands for "no" and for "yes"; an id is given as it is.
    """

    input: str
    kind: Literal["start", "end", "ready", "id"]
    values: tuple[float, float] = (0, 1)


class SequenceConfig(Section):
    """How requests with the parameter `sequence_id` belong together.

    Attributes:
        state: What is kept of a sequence.
        controls: What the model is told.
        strategy: "oldest" lets up to `max_candidate_sequences` sequences an instance go on at a time; "direct" gives
            each a row of the largest batch from its start to its end, so there are `max_batch_size` an instance.
        max_candidate_sequences: How many may go on at a time, for each instance.
        max_waiting_sequences: How many more may have started and wait for one of these to end; others are refused.
        idle_timeout_microseconds: After how long without a request a sequence is forgotten.
    """

    state: tuple[StateConfig, ...] = ()
    controls: tuple[ControlConfig, ...] = ()
    strategy: Literal["oldest", "direct"] = "oldest"
    max_candidate_sequences: Count = 1024
    max_waiting_sequences: CountOrZero = 0
    idle_timeout_microseconds: Count = Field(default=60_000_000)
