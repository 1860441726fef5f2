"""Magika: what kind of file some bytes are, out of 214 kinds (Fratantonio et al., 2024; Apache-2.0).

Not written here: the package's ONNX file is imported as it is.
"""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path

import numpy as np

from tidemill.bundle import import_model
from tidemill.modelzoo.package_files import package_file
from tidemill.modelzoo.settings import write_settings
from tidemill.modelzoo.zoo_model import Inputs

__all__ = ["build", "example_inputs", "look_at"]

_FOLDER = "models/standard_v3_3"
_LOOK, _BLOCK, _PADDING = 1024, 4096, 256


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/magika/1`, and the names of the kinds beside it.

    Args:
        repository: The folder to write into.
        weights: An ONNX file of the same outputs; the package's by default.

    Raises:
        ModuleNotFoundError: The package that carries the model is not installed.
    """
    import_model(weights or package_file("magika", f"{_FOLDER}/model.onnx"), "magika").write(
        repository / "magika" / "1"
    )
    settings = json.loads(package_file("magika", f"{_FOLDER}/config.min.json").read_text())
    (repository / "magika" / "kinds.txt").write_text("\n".join(settings["target_labels_space"]) + "\n")
    write_settings(repository / "magika" / "model.yaml", "labels:\n  target_label: kinds.txt\n")


def look_at(content: bytes) -> Inputs:
    """What the model sees of a file: its first and last 1,024 bytes without the white space around it."""
    begin, end = content[:_BLOCK].lstrip()[:_LOOK], content[-_BLOCK:].rstrip()[-_LOOK:]
    seen = np.full((1, 2 * _LOOK), _PADDING, np.int32)
    seen[0, : len(begin)] = list(begin)
    seen[0, 2 * _LOOK - len(end) :] = list(end)
    return {"bytes": seen}


def example_inputs() -> Inputs:
    """A small table."""
    return look_at(b"id,name,score\n1,alice,3.5\n2,bob,4.25\n3,carol,1.0\n4,dave,2.75\n")
