"""EfficientNet-Lite0 against the numbers of its authors' class in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import open_picture, pillow

from tidemill.modelzoo.efficientnet import SIZE, example_inputs

PHOTOS = ["chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png", "china.jpg"]


def prepared(path: Path) -> np.ndarray[Any, Any]:
    """The middle of a photo as the model wants it: float32 [1, 3, 224, 224]."""
    photo = open_picture(path)
    side = min(photo.size) * SIZE / 256
    left, top = ((length - side) / 2 for length in photo.size)
    corners = (round(left), round(top), round(left + side), round(top + side))
    square = photo.crop(corners).resize((SIZE, SIZE), pillow().Resampling.BICUBIC)
    return ((np.asarray(square, np.float32) - 127) / 128).transpose(2, 0, 1)[None]


def test_efficientnet_on_noise(open_model: Callable[..., Any], expected: Callable[[str], Any]) -> None:
    numbers = expected("efficientnet_lite0")["synthetic"]
    logits = open_model("efficientnet-lite0").run(example_inputs())["logits"][0]
    np.testing.assert_allclose(logits[:16], numbers["logits_first16"], atol=1e-4)
    assert logits.argmax() == numbers["argmax"]
    assert logits.sum() == pytest.approx(numbers["logits_sum"], abs=1e-2)


@pytest.mark.parametrize("photo", PHOTOS)
def test_efficientnet_sees_what_is_on_a_photo(
    photo: str, open_model: Callable[..., Any], expected: Callable[[str], Any], sample: Callable[[str, str], Path]
) -> None:
    (numbers,) = [case for case in expected("efficientnet_lite0")["cases"] if case["image"].endswith(photo)]
    image = prepared(sample(*numbers["image"].split("/", 1)))
    if photo == "chelsea.png":
        corner = expected("efficientnet_lite0")["preprocessed_chelsea_pixel_0_0"]
        np.testing.assert_allclose(image[0, :, 0, 0], corner, atol=1e-6)
    logits = open_model("efficientnet-lite0").run({"image": image})["logits"][0]
    np.testing.assert_allclose(logits[:8], numbers["logits_first8"], atol=1e-4)
    assert logits.argsort()[::-1][:5].tolist() == numbers["top5_ids"]
