"""The parameters of a request: which names are taken and what types they have, the same on both wires."""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.errors import InvalidArgument
from tidemill.protocol.types import Parameter

__all__ = ["check_parameters"]

_BOOLEAN = {"binary_data_output", "sequence_start", "sequence_end", "triton_enable_empty_final_response"}
_COUNT = {"timeout", "priority"}


def check_parameters(given: Mapping[str, object]) -> dict[str, Parameter]:
    """Check the parameters of a request; those without a meaning of their own pass through as they are.

    Raises:
        InvalidArgument: A name is reserved, or a value has the wrong type for its name.
    """
    checked: dict[str, Parameter] = {}
    for name, value in given.items():
        if not isinstance(value, bool | int | float | str):
            raise InvalidArgument(f"parameter {name!r} must be a string, a number or a boolean")
        _check_meaning(name, value)
        checked[name] = value
    return checked


def _check_meaning(name: str, value: Parameter) -> None:
    if name in _BOOLEAN:
        if not isinstance(value, bool):
            raise InvalidArgument(f"parameter {name!r} is {value!r}, expected a boolean")
    elif name in _COUNT:
        if type(value) is not int or value < 0:
            raise InvalidArgument(f"parameter {name!r} is {value!r}, expected a whole number not below 0")
    elif name == "headers" or name.startswith("triton_"):
        raise InvalidArgument(f"parameter {name!r} is a reserved name")
