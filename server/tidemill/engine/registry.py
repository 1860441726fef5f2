"""From a registry of weights to what a session is fed; checks what MAX leaves unchecked and copies nothing unasked."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np

from tidemill.driver.buffer import Buffer
from tidemill.driver.device import CPU, Device
from tidemill.dtype import DType
from tidemill.engine.conversion import to_ort_value
from tidemill.engine.fit import fits
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["bind_weights", "did_you_mean"]


def bind_weights(
    specs: Mapping[str, TensorSpec], registry: Mapping[str, Any], device: Device | None = None
) -> dict[str, Any]:
    """OrtValues by the weights' names in the model that share the registry's memory, or are copies on an accelerator.

    Args:
        specs: The weights of a graph by full name; a spec has the name in the model.
        registry: Numpy arrays, Buffers or DLPack tensors by name; entries that the graph does not use are ignored.
        device: Where the graph runs; the host if not given. Without the copy every run would bring the weights over.

    Raises:
        ValueError: A weight is missing, is no tensor, is not contiguous, or has another shape or dtype.
    """
    missing = [name for name in specs if name not in registry]
    if missing:
        others = f" Missing as well: {', '.join(missing[1:])}." if missing[1:] else ""
        raise ValueError(
            f"Weight {missing[0]!r} is not in the weights registry.{did_you_mean(missing[0], registry)}{others}"
        )
    arrays = {spec.name: _checked(name, spec, _to_array(registry[name])) for name, spec in specs.items()}
    return {name: to_ort_value(array, device or CPU()) for name, array in arrays.items()}


def did_you_mean(name: str, registry: Mapping[str, Any]) -> str:
    """A sentence with the registry's nearest name, "" if none is near."""
    close = get_close_matches(name, registry, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _to_array(value: Any) -> Array:
    if not hasattr(value, "__dlpack__"):
        raise ValueError(f"weight registry element does not implement dlpack: it is a {type(value).__name__}")
    return value if isinstance(value, np.ndarray) else Buffer.from_dlpack(value).to_numpy()


def _checked(name: str, spec: TensorSpec, array: Array) -> Array:
    if spec.shape == () and array.shape == (1,):
        array = array.reshape(())  # checkpoints hold scalars so, and a module takes them
    if not fits(spec, array):
        raise ValueError(
            f"Weight {name!r} has shape {list(array.shape)} and dtype {DType.from_numpy(array.dtype).name}, "
            f"the graph expects shape {list(spec.shape)} and dtype {spec.dtype.name}"
        )
    if not array.flags.c_contiguous or not array.dtype.isnative:
        raise ValueError(
            f"Weight {name!r} is not contiguous in C order and this machine's byte order, so it cannot be used without "
            "a copy; make one: numpy.ascontiguousarray(weight)"
        )
    return array
