"""Random tensors.

The seed decides where a session starts: each run continues from the last, and another session repeats them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import current, emit
from tidemill.graph.ir import Attribute
from tidemill.graph.ops.promote import TensorLike, cast_to
from tidemill.graph.type import DeviceRef, TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["SeedType", "gaussian", "normal", "set_seed", "uniform"]

# A seed is a float32 attribute in ONNX, which counts without gaps up to here.
_SEEDS = 2**24


def SeedType(device: DeviceRef) -> TensorType:  # noqa: N802  (the seed's name)
    """The type that the seed's graphs take seeds in as inputs; kept for signatures, see `set_seed`."""
    return TensorType(DType.uint64, [1], device)


def set_seed(seed: TensorLike | int = 0) -> None:
    """Set the seed of the random operators that follow in the graph being traced; each gets another one from it.

    Args:
        seed: A whole number in [0, 2^64).

    Raises:
        ValueError: It is out of range.
        NotImplementedError: It is a tensor: ONNX seeds are constants. Make random numbers an input of the graph.
    """
    if not isinstance(seed, int):
        raise NotImplementedError(
            "set_seed: ONNX random operators have constant seeds, a tensor can not be one; to choose numbers per run, "
            "make them an input of the graph"
        )
    if not 0 <= seed < 2**64:
        raise ValueError(f"set_seed: {seed} is not in [0, 2**64)")
    current().seed = seed


def uniform(like: TensorType, range: tuple[float, float] = (0, 1)) -> TensorValue:
    """Numbers that are equally likely anywhere between two bounds.

    Args:
        like: The type of the result; a floating point type.
        range: The smallest number, and the bound that all stay below.

    Raises:
        RuntimeError: No seed was set.
        ValueError: The bounds are not in order, or the dtype is not floating point.
    """
    low, high = range
    if not low < high:
        raise ValueError(f"uniform: range {range} must be (low, high) with low < high")
    return _random("RandomUniform", like, low=float(low), high=float(high))


def gaussian(like: TensorType, mean: float = 0.0, std: float = 1.0) -> TensorValue:
    """Normally distributed numbers.

    Args:
        like: The type of the result; a floating point type.
        mean: What they are on average.
        std: Their standard deviation, above 0.

    Raises:
        RuntimeError: No seed was set.
        ValueError: `std` is not above 0, or the dtype is not floating point.
    """
    if not std > 0:
        raise ValueError(f"gaussian: std is {std}, it must be above 0")
    return _random("RandomNormal", like, mean=float(mean), scale=float(std))


normal = gaussian


def _random(op: str, like: TensorType, **parameters: float) -> TensorValue:
    if not like.dtype.is_float():
        raise ValueError(f"{op}: draws floating point numbers, not {like.dtype!r}; scale, floor and cast them")
    drawn = TensorType(DType.float64 if like.dtype is DType.float64 else DType.float32, like.shape, like.device)
    attributes: dict[str, Attribute] = {**parameters, "dtype": drawn.dtype.onnx, "seed": _next_seed()}
    if like.shape.is_static:
        return cast_to(emit(op, [], drawn, shape=tuple(like.shape.static_dims), **attributes), like.dtype)
    zero = current().constant(np.zeros(1, np.int8))
    shaped = emit("Expand", [zero, current().extents(like.shape)], drawn.cast(DType.int8))
    return cast_to(emit(f"{op}Like", [shaped], drawn, **attributes), like.dtype)


def _next_seed() -> float:
    graph = current()
    if graph.seed is None:
        raise RuntimeError("No seed set! Set with `ops.random.set_seed`.")
    seed, graph.seed = graph.seed, (graph.seed + 1) % 2**64
    # Seeds that differ only in high bits differ too: 2^64 modulo a prime below the limit.
    return float(seed % (_SEEDS - 3))
