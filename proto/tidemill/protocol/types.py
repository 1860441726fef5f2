"""What both ends of a wire exchange, as plain data; knows neither JSON nor protobuf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy.typing as npt

from tidemill.dtype import DType

__all__ = [
    "Array",
    "InferRequest",
    "InferResponse",
    "ModelMetadata",
    "Parameter",
    "RegionSlice",
    "RequestedOutput",
    "ServerMetadata",
    "TensorSpec",
    "Timing",
]

Array: TypeAlias = npt.NDArray[Any]
Parameter: TypeAlias = bool | int | float | str


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a model.

    Attributes:
        name: Unique among the inputs (or outputs) of the model.
        dtype: The element type.
        shape: One entry an axis: a size, or the name of a symbolic dim ("batch"), or "" for a size that is free.
    """

    name: str
    dtype: DType
    shape: tuple[int | str, ...]

    @property
    def wire_shape(self) -> list[int]:
        """The shape as the Open Inference Protocol writes it: -1 for every dim that is not fixed."""
        return [dim if isinstance(dim, int) else -1 for dim in self.shape]

    def __str__(self) -> str:
        dims = ", ".join(str(dim) or "?" for dim in self.shape)
        return f"{self.name}: {self.dtype.wire}[{dims}]"


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a model says of itself: its READY versions, its platform and its signature."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True)
class ServerMetadata:
    """Name, version and the protocol extensions that the server offers."""

    name: str
    version: str
    extensions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RegionSlice:
    """A piece of a shared memory region that the caller registered under `name`; sizes in bytes."""

    name: str
    byte_size: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """An output that the caller asked for.

    Attributes:
        name: The output's name.
        binary: Whether its bytes follow the JSON (REST only; gRPC is always raw).
        classification: How many of the largest elements to name instead of the tensor; 0 for the tensor itself.
        region: Where to write the tensor's bytes instead of sending them.
    """

    name: str
    binary: bool = False
    classification: int = 0
    region: RegionSlice | None = None


@dataclass(frozen=True, slots=True)
class InferRequest:
    """One request for one model.

    Attributes:
        model_name: The served model.
        model_version: A version number as text; "" for the newest.
        id: The caller's id, echoed; "" for none.
        inputs: Arrays by input name, in the caller's order. BYTES tensors are object arrays of `bytes`.
        outputs: The outputs to return; empty for all.
        parameters: The request's parameters.
    """

    model_name: str
    inputs: Mapping[str, Array]
    model_version: str = ""
    id: str = ""
    outputs: tuple[RequestedOutput, ...] = ()
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timing:
    """Where one request's time went.

    Attributes:
        queue_seconds: Waiting for a run.
        run_seconds: The run that it took part in.
        batch_rows: Rows of that run, its own included.
        batch: That run, to tell whether two requests took part in the same; None if nobody needs to.
    """

    queue_seconds: float
    run_seconds: float
    batch_rows: int
    batch: object = None


@dataclass(frozen=True, slots=True)
class InferResponse:
    """The answer to one request.

    Attributes:
        model_name: The served model.
        model_version: The version that answered.
        outputs: Arrays by output name, in the order asked for.
        id: The request's id.
        parameters: The answer's parameters.
        regions: Where the bytes of an output were written, by its name; such an output is described, not sent.
        timing: Where the time went; None if nobody measured.
    """

    model_name: str
    model_version: str
    outputs: Mapping[str, Array]
    id: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    regions: Mapping[str, RegionSlice] = field(default_factory=dict)
    timing: Timing | None = None
