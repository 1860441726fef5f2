"""In which order convolutions find the axes of images and filters; the names are the seed's."""

from __future__ import annotations

from enum import Enum

__all__ = ["ConvInputLayout", "FilterLayout"]


class ConvInputLayout(Enum):
    """Where the channels of an image are; H and W stand for all of its spatial axes, whatever their number."""

    NHWC = "NHWC"
    NCHW = "NCHW"

    def __str__(self) -> str:
        return self.value


class FilterLayout(Enum):
    """The axes of a filter: Q, R and S are depth, height and width, C channels that go in and F features that come out.

    A one-dimensional filter has S alone of the spatial axes, so `RSCF` is [width, in, out] for it.
    """

    RSCF = "RSCF"
    QRSCF = "QRSCF"
    FCRS = "FCRS"
    FCQRS = "FCQRS"
    CFRS = "CFRS"

    def __str__(self) -> str:
        return self.value
