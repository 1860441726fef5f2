"""PP-OCRv4's recogniser: a line of printed text, Latin or Chinese, to its characters (packed by rapidocr, Apache-2.0).

Not written here: the package's ONNX file is imported as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemill.bundle import import_model
from tidemill.modelzoo.package_files import package_file
from tidemill.modelzoo.zoo_model import Inputs

__all__ = ["HEIGHT", "build", "example_inputs", "read_line"]

HEIGHT = 48


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/rapidocr-rec/1`, and its characters, one a line, beside it.

    Args:
        repository: The folder to write into.
        weights: An ONNX file with its characters in the metadata; the package's by default.

    Raises:
        ModuleNotFoundError: The package that carries the model is not installed.
    """
    file = weights or package_file("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx")
    bundle = import_model(file, "rapidocr-rec")
    bundle.write(repository / "rapidocr-rec" / "1")
    metadata = {entry.key: entry.value for entry in bundle.graphs["main"].model.metadata_props}
    # Class 0 is the blank of CTC, the last one the space.
    characters = ["", *metadata["character"].rstrip("\n").split("\n"), " "]
    (repository / "rapidocr-rec" / "characters.txt").write_text("\n".join(characters), encoding="utf-8")


def read_line(probability: NDArray[np.floating[Any]], characters: Sequence[str]) -> str:
    """The text in [steps, characters]: the best character of each step, repeats as one (CTC)."""
    best = probability.argmax(axis=-1)
    changed = np.flatnonzero(np.diff(best, prepend=-1))
    return "".join(characters[place] for place in best[changed])


def example_inputs() -> Inputs:
    """An empty line: blue, green, red from -1 to 1."""
    return {"x": np.ones((1, 3, HEIGHT, 96), np.float32)}
