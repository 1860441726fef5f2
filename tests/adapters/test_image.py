from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tidemill.adapters import open_adapter
from tidemill.adapters.adapter import Adapter
from tidemill.bundle.config import AdapterConfig, ImageAdapterConfig
from tidemill.dtype import DType
from tidemill.errors import ConfigError, InvalidArgument
from tidemill.protocol.types import Array, TensorSpec

NCHW = TensorSpec("image", DType.float32, ("batch", 3, 4, 4))


def adapter(spec: TensorSpec = NCHW, /, **options: Any) -> Adapter:
    opened = open_adapter(AdapterConfig(image=ImageAdapterConfig(**options)), Path(), (spec,))
    assert opened is not None
    return opened


def encoded(pixels: Array, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def files(*values: bytes) -> dict[str, Array]:
    return {"image": np.array(values, np.object_)}


def colours(height: int, width: int) -> Array:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def test_pixels_are_normalised_and_laid_out() -> None:
    pixels = colours(4, 4)
    given = files(encoded(pixels), encoded(pixels[::-1]))
    converted = adapter(mean=(127, 127, 127), scale=(128, 128, 128)).convert(given)["image"]
    expected = (np.stack([pixels, pixels[::-1]]).astype(np.float32) - 127) / 128
    np.testing.assert_array_equal(converted, expected.transpose(0, 3, 1, 2))


def test_the_middle_is_cut() -> None:
    pixels = colours(8, 10)
    converted = adapter(crop=0.5, scale=(1, 1, 1)).convert(files(encoded(pixels)))["image"]
    np.testing.assert_array_equal(converted[0].transpose(1, 2, 0), pixels[2:6, 3:7])


def test_the_corners_of_the_middle_are_rounded_each() -> None:
    pixels = colours(7, 10)
    converted = adapter(crop=0.5, resample="nearest", scale=(1, 1, 1)).convert(files(encoded(pixels)))["image"]
    expected = Image.fromarray(pixels[2:5, 3:7]).resize((4, 4), Image.Resampling.NEAREST)
    np.testing.assert_array_equal(converted[0].transpose(1, 2, 0), np.asarray(expected))


def test_a_picture_is_turned_as_its_exif_says() -> None:
    pixels, exif = colours(4, 4), Image.Exif()
    exif[0x0112] = 3
    converted = adapter(scale=(1, 1, 1)).convert(files(encoded(pixels, exif=exif)))["image"]
    np.testing.assert_array_equal(converted[0].transpose(1, 2, 0), pixels[::-1, ::-1])


@pytest.mark.parametrize(
    "bad", [b"", b"no picture", encoded(colours(64, 64))[:200], encoded(colours(9, 9), "JPEG")[:90]]
)
def test_a_bad_file_is_named_by_its_row(bad: bytes) -> None:
    with pytest.raises(InvalidArgument, match="element 1 is no readable picture"):
        adapter().convert(files(encoded(colours(4, 4)), bad))


def test_more_than_8_bits_are_not_cut_off_in_silence() -> None:
    deep = io.BytesIO()
    Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(deep, "PNG")
    with pytest.raises(InvalidArgument, match="more than 8 bits a channel"):
        adapter().convert(files(deep.getvalue()))


def test_many_small_files_do_not_become_all_the_memory() -> None:
    large = TensorSpec("image", DType.float32, ("batch", 3, 224, 224))
    with pytest.raises(InvalidArgument, match="10000 pictures; at most"):
        adapter(large).convert(files(*[b"x"] * 10_000))


@pytest.mark.parametrize(("limit", "message"), [("max_bytes", "bytes; at most 20"), ("max_pixels", "8 x 8 pixels")])
def test_a_large_file_is_refused(limit: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        adapter(NCHW, **{limit: 20}).convert(files(encoded(colours(8, 8))))


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec("other", DType.float32, ("batch", 3, 4, 4)),
        TensorSpec("image", DType.int64, ("batch", 3, 4, 4)),
        TensorSpec("image", DType.float32, ("batch", 4, 4, 3)),
        TensorSpec("image", DType.float32, ("batch", 3)),
    ],
)
def test_a_model_without_a_place_for_pictures_is_refused(spec: TensorSpec) -> None:
    with pytest.raises(ConfigError, match=r"adapter\.image"):
        adapter(spec)
