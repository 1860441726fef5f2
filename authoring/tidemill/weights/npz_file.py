"""Archives of numpy's as arrays; nothing pickled in them is ever loaded."""

from __future__ import annotations

import zipfile
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from tidemill.weights.safetensors import Array

__all__ = ["read_npz"]


def read_npz(path: str | PathLike[str]) -> dict[str, Array]:
    """The arrays of a `.npz` by name.

    Raises:
        ValueError: It is no such file, or holds something else than arrays of numbers.
    """
    file = Path(path)
    try:
        with file.open("rb") as opened:
            archive = np.load(opened, allow_pickle=False)
            if not isinstance(archive, NpzFile):
                raise ValueError("it is a single array, not an archive")
            return {name: archive[name] for name in archive}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} cannot be read as a numpy archive: {error}") from None
