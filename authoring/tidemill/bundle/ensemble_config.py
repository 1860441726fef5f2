"""The section `ensemble` of model.yaml: served models, one behind the other; knows no server."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from tidemill.bundle.section import Count, Section

__all__ = ["EnsembleConfig", "StepConfig", "TensorConfig"]


class TensorConfig(Section):
    """A tensor that goes into an ensemble or comes out of it; its name alone will do.

    Attributes:
        name: What callers call it.
        datatype: Its type, such as FP32; None as the model says that takes or makes it.
        shape: Its sizes with the batch axis, -1 for any; None likewise.
    """

    name: str
    datatype: str | None = None
    shape: tuple[int, ...] | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given


class StepConfig(Section):
    """One model of an ensemble.

    Attributes:
        model: The served model.
        version: Which of its versions; None for the newest.
        inputs: The ensemble's tensor that each of the model's inputs takes.
        outputs: What each of the model's outputs is called in the ensemble; those that are not named are dropped.
    """

    model: str
    version: Count | None = None
    inputs: dict[str, str]
    outputs: dict[str, str] = Field(min_length=1)


class EnsembleConfig(Section):
    """A graph of served models; a step runs as soon as its inputs are there.

    Attributes:
        steps: The models, in any order.
        inputs: What callers send; if not given, what steps take and none makes.
        outputs: What callers get; if not given, what steps make and none takes.
    """

    steps: tuple[StepConfig, ...] = Field(min_length=1)
    inputs: tuple[TensorConfig, ...] = ()
    outputs: tuple[TensorConfig, ...] = ()
