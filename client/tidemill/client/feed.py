"""What callers pass to `infer`, as a request; knows no transport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.types import Array, InferRequest, Parameter, RequestedOutput

__all__ = ["build_request"]


def build_request(
    model: str,
    inputs: Mapping[str, npt.ArrayLike],
    *,
    version: str = "",
    outputs: Sequence[str] = (),
    request_id: str = "",
    parameters: Mapping[str, Parameter] | None = None,
) -> InferRequest:
    """Turn the arguments of `infer` into a request.

    Raises:
        InvalidArgument: An input is no tensor (ragged lists, complex numbers, dates); the message names it.
    """
    return InferRequest(
        model_name=model,
        model_version=str(version),
        id=request_id,
        inputs={name: _tensor(name, value) for name, value in inputs.items()},
        outputs=tuple(RequestedOutput(name, binary=True) for name in outputs),
        parameters=parameters or {},
    )


def _tensor(name: str, value: npt.ArrayLike) -> Array:
    try:
        array = np.asarray(value)
        DType.from_numpy(array.dtype)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"input {name!r} cannot be sent as a tensor: {error}") from error
    return array
