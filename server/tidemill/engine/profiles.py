"""TensorRT's optimisation profiles from the declared ranges of symbolic dims; knows only its text format.

Without a profile TensorRT builds an engine anew for every shape that it meets, which takes minutes each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemill.errors import ConfigError
from tidemill.protocol.types import TensorSpec

__all__ = ["DimRange", "tensorrt_profiles"]


@dataclass(frozen=True, slots=True)
class DimRange:
    """The sizes that a symbolic dim takes.

    Attributes:
        least: The smallest.
        usual: The one to be fast for.
        greatest: The largest.

    Raises:
        ConfigError: They are not in this order, or below 1.
    """

    least: int
    usual: int
    greatest: int

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.usual <= self.greatest:
            raise ConfigError(
                f"the range of a dim is least <= usual <= greatest from 1 on, not {self.least}, {self.usual}, "
                f"{self.greatest}"
            )


def tensorrt_profiles(inputs: Sequence[TensorSpec], ranges: Mapping[str, DimRange]) -> dict[str, str]:
    """Provider options for one profile over all inputs; none if no range is declared or every shape is fixed.

    Args:
        inputs: The model's inputs.
        ranges: By the name of the dim.

    Raises:
        ConfigError: Some dims have a range and another has none, or has no name to declare one by.
    """
    free = [spec for spec in inputs if any(not isinstance(dim, int) for dim in spec.shape)]
    if not ranges or not free:
        return {}
    for spec in free:
        for dim in spec.shape:
            if not isinstance(dim, int) and dim not in ranges:
                raise ConfigError(
                    f"TensorRT needs a range for every free dim; {spec} has {dim or 'a nameless one'}, declared are "
                    f"{', '.join(ranges)}"
                )
    return {
        f"trt_profile_{short}_shapes": ",".join(_shape(spec, ranges, field) for spec in free)
        for short, field in (("min", "least"), ("opt", "usual"), ("max", "greatest"))
    }


def _shape(spec: TensorSpec, ranges: Mapping[str, DimRange], field: str) -> str:
    sizes = (dim if isinstance(dim, int) else getattr(ranges[dim], field) for dim in spec.shape)
    return f"{spec.name}:{'x'.join(map(str, sizes))}"
