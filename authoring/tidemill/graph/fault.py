"""How a wrong operand is reported: the operator, its inputs, and what does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["op_fault"]


def op_fault(op: str, inputs: Mapping[str, Any], text: str) -> ValueError:
    """A ValueError that names the operator and shows its inputs; the traceback shows the user's line."""
    shown = "".join(f"    {name} = {value!r}\n" for name, value in inputs.items())
    return ValueError(f"Failed to create op '{op}':\nInputs:\n{shown}\n{text}")
