"""The section `pipeline` of model.yaml: Python code between served models; knows no server and runs nothing."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from tidemill.bundle.ensemble_config import TensorConfig
from tidemill.bundle.section import Section

__all__ = ["PipelineConfig"]


class PipelineConfig(Section):
    """A function that is given tensors and asks served models.

    Attributes:
        inputs: What callers send; each with datatype and shape.
        outputs: What callers get; likewise.
        models: The served models that the function may ask.
        file: The Python file, relative to model.yaml.
    """

    inputs: tuple[TensorConfig, ...] = Field(min_length=1)
    outputs: tuple[TensorConfig, ...] = Field(min_length=1)
    models: tuple[str, ...] = ()
    file: str = "pipeline.py"

    @model_validator(mode="after")
    def _check_tensors(self) -> Self:
        for tensor in (*self.inputs, *self.outputs):
            if tensor.datatype is None or tensor.shape is None:
                raise ValueError(f"tensor {tensor.name!r} needs a datatype and a shape, such as FP32 and [-1, 3]")
        return self
