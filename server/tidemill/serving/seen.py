"""One request that is over, as those are told who watch; made of what is known anyway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from tidemill.protocol.types import Array, Timing

__all__ = ["RequestSeen", "Shape", "Watcher", "shapes_of"]


class Shape(NamedTuple):
    """An input without its values."""

    name: str
    dtype: np.dtype[np.generic]
    sizes: tuple[int, ...]


class RequestSeen(NamedTuple):
    """One request that is over.

    Attributes:
        model: The model's name; "" if none was found.
        version: Its version.
        protocol: "rest", "grpc" or "stream".
        carrier: The caller's headers, or metadata; nothing where they were not kept.
        started: When it came, in the server's clock, in seconds.
        seconds: How long it was here.
        code: "ok", or the error's code.
        reason: What the caller was told; "" for nothing.
        timing: Where the time went; None if it never ran.
        shapes: Its inputs; none if they could not be read.
        request_id: The id that its caller gave it; "" for none.
    """

    model: str
    version: str
    protocol: str
    carrier: Mapping[str, str]
    started: float
    seconds: float
    code: str
    reason: str = ""
    timing: Timing | None = None
    shapes: tuple[Shape, ...] = ()
    request_id: str = ""


Watcher: TypeAlias = Callable[[RequestSeen], None]


def shapes_of(inputs: Mapping[str, Array]) -> tuple[Shape, ...]:
    """The inputs without their values."""
    return tuple([Shape(name, array.dtype, array.shape) for name, array in inputs.items()])
