"""Identity: the layer that does nothing."""

from __future__ import annotations

from typing import Any

from tidemill.nn.layer.module import Module

__all__ = ["Identity"]


class Identity(Module):
    """Returns its argument; stands where a layer was taken out."""

    def __call__(self, x: Any) -> Any:
        """The argument."""
        return x
