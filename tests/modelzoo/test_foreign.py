"""Models that others exported, imported as they are, against ONNX Runtime on the original files."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import open_picture, pillow

from tidemill.modelzoo.magika import look_at
from tidemill.modelzoo.rapidocr_rec import HEIGHT, read_line


def kinds(repository: Path) -> list[str]:
    return (repository / "magika" / "kinds.txt").read_text().splitlines()


@pytest.mark.parametrize(
    "case", ["json", "csv", "numpy/__init__.py", "skimage/data/rocket.jpg", "skimage/data/coins.png"]
)
def test_magika_knows_the_file(
    case: str,
    built: Callable[[str], Path],
    open_model: Callable[..., Any],
    expected: Callable[[str], Any],
    sample: Callable[[str, str], Path],
) -> None:
    (numbers,) = [one for one in expected("magika")["cases"] if one["name"] == case]
    if case == "numpy/__init__.py":
        content = Path(np.__file__).read_bytes()
    elif "/" in case:
        content = sample(*case.split("/", 1)).read_bytes()
    else:
        content = numbers["bytes_utf8"].encode()
    scores = open_model("magika").run(look_at(content))["target_label"][0]
    names = kinds(built("magika"))
    if case == "numpy/__init__.py":  # not the same file in every release
        assert names[scores.argmax()] == "python"
        return
    for name, score in numbers["top3"]:
        assert scores[names.index(name)] == pytest.approx(score, abs=1e-4)
    assert names[scores.argmax()] == numbers["top3"][0][0]


def test_rapidocr_reads_a_page(
    built: Callable[[str], Path],
    open_model: Callable[..., Any],
    expected: Callable[[str], Any],
    sample: Callable[[str, str], Path],
) -> None:
    run = open_model("rapidocr-rec").run
    characters = (built("rapidocr-rec") / "rapidocr-rec" / "characters.txt").read_text(encoding="utf-8").split("\n")
    assert len(characters) == 6625
    page = open_picture(sample("skimage", "data/page.png"))
    for case in expected("rapidocr")["rec"]["cases"]:
        line = page.crop(tuple(case["crop_xyxy"]))
        wide = math.ceil(HEIGHT * line.width / line.height)
        pixels = np.asarray(line.resize((wide, HEIGHT), pillow().Resampling.BILINEAR), np.float32)[:, :, ::-1]
        (probability,) = run({"x": ((pixels / 255 - 0.5) / 0.5).transpose(2, 0, 1)[None]}).values()
        assert read_line(probability[0], characters) == case["text"]
