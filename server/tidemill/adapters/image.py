"""Picture files to one tensor, prepared as the model was trained; knows nothing of the model but its inputs."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Mapping

import numpy as np

from tidemill.bundle.image_config import ImageAdapterConfig
from tidemill.dtype import DType
from tidemill.errors import ConfigError, InvalidArgument
from tidemill.protocol.types import Array, TensorSpec

try:
    from PIL import Image, ImageOps
except ImportError:
    raise ConfigError("adapter.image needs the pillow package: pip install 'tidemill[image]'") from None

__all__ = ["ImageAdapter"]

_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV")
"""Those whose channels have 8 bits or fewer; Pillow would clip others without a word."""
_MOST_BYTES = 1 << 30
"""What the pixels of one request may take: a picture of a few bytes becomes as large as any other."""
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
# What Pillow's readers are known to raise at files that are cut off, damaged or hostile.
_BAD_FILE = (
    *(OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, OverflowError, struct.error, zlib.error),
    *(Image.DecompressionBombError, Image.DecompressionBombWarning),
)


class ImageAdapter:
    """Takes BYTES [batch] of JPEG, PNG, WebP, BMP or GIF files (first frame) and gives float32 pixels."""

    def __init__(self, config: ImageAdapterConfig, inputs: tuple[TensorSpec, ...]) -> None:
        """Fit the conversion to a model.

        Raises:
            ConfigError: The model has no such input, or it is not float32 [batch, 3, height, width] (or NHWC).
        """
        self._config = config
        self._pixels = _pixel_input(config, inputs)
        self._height, self._width = _size(config, self._pixels)
        self._files = TensorSpec(config.input, DType.string, self._pixels.shape[:1])
        self.inputs = (self._files, *(spec for spec in inputs if spec.name != config.pixels))
        self._filter = Image.Resampling[config.resample.upper()]

    def count_tokens(self, _inputs: Mapping[str, Array]) -> int:
        """Pictures have none."""
        return 0

    def convert(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Decode, turn as EXIF says, drop transparency, cut, resize, normalise.

        Args:
            inputs: The input of files, BYTES [batch], and inputs that pass through.

        Raises:
            InvalidArgument: A file is no picture, damaged or too large; the message names the element.
        """
        files = inputs[self._files.name]
        most = _MOST_BYTES // (self._height * self._width * 3 * 4)
        if len(files) > most:
            raise InvalidArgument(f"input {self._files.name!r} has {len(files)} pictures; at most {most} go together")
        pixels = np.empty((len(files), self._height, self._width, 3), np.float32)
        for row, file in enumerate(files):
            pixels[row] = self._prepared(row, file)
        if self._config.layout == "NCHW":
            pixels = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
        passed = {name: array for name, array in inputs.items() if name != self._files.name}
        return passed | {self._pixels.name: pixels}

    def _prepared(self, row: int, file: bytes) -> Array:
        picture = self._decoded(f"input {self._files.name!r}, element {row}", file)
        cut = picture if self._config.crop is None else _middle(picture, self._config.crop)
        resized = np.asarray(cut.resize((self._width, self._height), self._filter), np.float32)
        prepared: Array = (resized - np.array(self._config.mean, np.float32)) / np.array(self._config.scale, np.float32)
        return prepared

    def _decoded(self, place: str, file: bytes) -> Image.Image:
        if len(file) > self._config.max_bytes:
            raise InvalidArgument(f"{place}: {len(file)} bytes; at most {self._config.max_bytes} are taken")
        try:
            with Image.open(io.BytesIO(file), formats=_FORMATS) as opened:
                self._check_size(place, opened)
                if opened.mode not in _MODES:
                    raise InvalidArgument(
                        f"{place} has more than 8 bits a channel (mode {opened.mode!r}), which would be cut off; "
                        "convert it to 8 bits"
                    )
                return ImageOps.exif_transpose(opened).convert("RGB")
        except InvalidArgument:
            raise
        except _BAD_FILE:
            # Pillow's own words may hold addresses of objects.
            raise InvalidArgument(f"{place} is no readable picture; expected one of {', '.join(_FORMATS)}") from None

    def _check_size(self, place: str, opened: Image.Image) -> None:
        width, height = opened.size
        if width * height > self._config.max_pixels:
            raise InvalidArgument(f"{place}: {width} x {height} pixels; at most {self._config.max_pixels} are decoded")


def _middle(picture: Image.Image, share: float) -> Image.Image:
    side = min(picture.size) * share
    left, top = ((length - side) / 2 for length in picture.size)
    # The corners are rounded, not the side: EfficientNet's reference figures were made so.
    corners = (
        round(left),
        round(top),
        max(round(left) + 1, round(left + side)),
        max(round(top) + 1, round(top + side)),
    )
    return picture.crop(corners)


def _pixel_input(config: ImageAdapterConfig, inputs: tuple[TensorSpec, ...]) -> TensorSpec:
    found = next((spec for spec in inputs if spec.name == config.pixels), None)
    if found is None:
        listed = ", ".join(map(str, inputs))
        raise ConfigError(f"adapter.image: the model has no input {config.pixels!r}; it has {listed}")
    return found


def _size(config: ImageAdapterConfig, pixels: TensorSpec) -> tuple[int, int]:
    sizes = dict(zip(config.layout, pixels.shape, strict=False))
    height, width = sizes.get("H"), sizes.get("W")
    fits = len(pixels.shape) == 4 and pixels.dtype is DType.float32 and sizes["C"] == 3
    if not fits or not isinstance(height, int) or not isinstance(width, int):
        raise ConfigError(f"adapter.image: input {pixels} cannot take pictures; expected float32 {config.layout}, C 3")
    return height, width
