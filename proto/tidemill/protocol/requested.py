"""What is asked of single tensors by their parameters, the same on both wires; knows neither JSON nor protobuf."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tidemill.errors import InvalidArgument, Unsupported
from tidemill.protocol.types import Parameter, RegionSlice, RequestedOutput

__all__ = ["ReadRegion", "no_regions", "region_parameters", "region_slice", "requested_output"]

ReadRegion: TypeAlias = Callable[[RegionSlice], bytes | bytearray | memoryview]


def no_regions(_slice: RegionSlice) -> bytes:
    """Stands where no shared memory is offered; always raises Unsupported."""
    raise Unsupported("this server offers no shared memory")


def region_slice(parameters: Mapping[str, object], owner: str) -> RegionSlice | None:
    """The piece of shared memory that a tensor's parameters name, None if they name none.

    Raises:
        InvalidArgument: The name, size or offset is of the wrong type or missing.
    """
    name = parameters.get("shared_memory_region")
    if name is None:
        return None
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{owner}: shared_memory_region is {name!r}, expected a region's name")
    size = _count(parameters, "shared_memory_byte_size", owner)
    offset = _count(parameters, "shared_memory_offset", owner) if "shared_memory_offset" in parameters else 0
    return RegionSlice(name, size, offset)


def region_parameters(place: RegionSlice) -> dict[str, Parameter]:
    """The parameters that say where a tensor's bytes lie; the inverse of `region_slice`."""
    parameters: dict[str, Parameter] = {
        "shared_memory_region": place.name,
        "shared_memory_byte_size": place.byte_size,
    }
    if place.offset:
        parameters["shared_memory_offset"] = place.offset
    return parameters


def requested_output(name: str, parameters: Mapping[str, object], *, binary: bool) -> RequestedOutput:
    """What a caller wants of one output.

    Args:
        name: The output.
        parameters: As sent, not yet trusted.
        binary: The form if the parameters do not say.

    Raises:
        InvalidArgument: A parameter is of the wrong type, or two contradict each other.
    """
    owner = f"output {name!r}"
    asked = parameters.get("binary_data", binary)
    if not isinstance(asked, bool):
        raise InvalidArgument(f"{owner}: binary_data is {asked!r}, expected a boolean")
    classes = _count(parameters, "classification", owner) if "classification" in parameters else 0
    region = region_slice(parameters, owner)
    if region and classes:
        raise InvalidArgument(f"{owner} asks for a classification in shared memory; choose one of them")
    if region and parameters.get("binary_data"):
        raise InvalidArgument(f"{owner} asks for binary data and for shared memory; choose one of them")
    return RequestedOutput(name, asked and not region, classes, region)


def _count(parameters: Mapping[str, object], name: str, owner: str) -> int:
    value = parameters.get(name)
    if type(value) is not int or not 0 <= value < 2**63:
        raise InvalidArgument(f"{owner}: {name} is {value!r}, expected a whole number from 0 on")
    return value
