"""A picture's file as the tensor that a model takes; knows no other files."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument, Unsupported
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["Normalisation", "is_picture", "read_picture"]

_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")
_COLOURS = 3


@dataclass(frozen=True, slots=True)
class Normalisation:
    """What floats become after they were scaled to 0..1: (x - mean) / deviation, by colour."""

    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    deviation: tuple[float, ...] = (1.0, 1.0, 1.0)


def is_picture(data: bytes) -> bool:
    """Whether a file begins as PNG, JPEG, GIF, BMP, TIFF or WebP do."""
    return data.startswith(_STARTS) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP")


def read_picture(data: bytes, spec: TensorSpec, normalisation: Normalisation) -> Array:
    """Decode, resize to the model's size, order the axes as the signature has them.

    Args:
        data: The file.
        spec: The input: [batch, 3, height, width] or [batch, height, width, 3]; a free size keeps the picture's own.
        normalisation: Of floats; UINT8 stays as it is.

    Returns:
        One row.

    Raises:
        InvalidArgument: The input is of another shape or dtype, or the file is damaged.
    """
    dims = spec.shape
    if len(dims) != 4 or _COLOURS not in (dims[1], dims[3]) or not (spec.dtype.is_float() or spec.dtype is DType.uint8):
        raise InvalidArgument(f"a picture does not fit input {spec}; it needs UINT8 or floats of 3 colours")
    first = dims[1] == _COLOURS
    pixels = _decode(data, *(dims[2:] if first else dims[1:3]))
    if spec.dtype is not DType.uint8:
        scaled = (pixels / 255.0 - np.array(normalisation.mean)) / np.array(normalisation.deviation)
        pixels = scaled.astype(spec.dtype.to_numpy())
    return np.ascontiguousarray(pixels.transpose(2, 0, 1) if first else pixels)[None]


def _decode(data: bytes, height: int | str, width: int | str) -> Array:
    """RGB [height, width, 3] uint8."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError as error:
        raise Unsupported("pictures are decoded by Pillow; run: pip install pillow") from error
    try:
        picture = Image.open(io.BytesIO(data)).convert("RGB")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise InvalidArgument(f"the picture cannot be read: {error}") from error
    size = (width if isinstance(width, int) else picture.width, height if isinstance(height, int) else picture.height)
    return np.asarray(picture if picture.size == size else picture.resize(size))
