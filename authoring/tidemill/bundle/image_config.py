"""What model.yaml says of pictures; knows nothing of how they are decoded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tidemill.bundle.section import Count, Section

__all__ = ["ImageAdapterConfig"]

_Channels = tuple[float, float, float]
_Scale = Annotated[float, Field(gt=0)]


class ImageAdapterConfig(Section):
    """Picture files in, one float tensor out.

    Attributes:
        input: The name of the BYTES input that callers send.
        pixels: The model's input that takes the pictures.
        layout: The order of that input's axes.
        crop: The side of the square cut from the middle, as a share of the shorter side; None to take all of it.
        resample: The filter that resizes.
        mean: Taken off red, green and blue, which are 0 to 255.
        scale: What they are divided by then.
        max_bytes: The largest file.
        max_pixels: The largest width x height that is decoded.
    """

    input: str = "image"
    pixels: str = "image"
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    crop: Annotated[float, Field(gt=0, le=1)] | None = None
    resample: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    mean: _Channels = (0.0, 0.0, 0.0)
    scale: tuple[_Scale, _Scale, _Scale] = (255.0, 255.0, 255.0)
    max_bytes: Count = 16 << 20
    max_pixels: Count = 40_000_000
