"""Weights found by walking names as attributes and indices: `weights.model.layers[0].weight`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path

from tidemill.weights.checkpoint import Checkpoint
from tidemill.weights.data import WeightData
from tidemill.weights.store import LocalStore

__all__ = ["Weights", "load_weights"]


class Weights:
    """A place in a checkpoint's names; each attribute or index goes one step down.

    Attributes:
        name: The steps so far, joined by dots.
    """

    def __init__(self, checkpoint: Checkpoint, name: str = "") -> None:
        self._checkpoint = checkpoint
        self.name = name

    def __getattr__(self, step: str) -> Weights:
        if step.startswith("__"):  # copy and pickle ask for these
            raise AttributeError(step)
        return self[step]

    def __getitem__(self, step: int | str) -> Weights:
        return Weights(self._checkpoint, f"{self.name}.{step}" if self.name else str(step))

    def exists(self) -> bool:
        """Whether a weight has exactly this name."""
        return self.name in self._checkpoint

    def data(self) -> WeightData:
        """The weight of this name, over mapped memory.

        Raises:
            KeyError: There is none; the message suggests a close name.
        """
        return WeightData.from_numpy(self._checkpoint[self.name], self.name)

    def items(self) -> Iterator[tuple[str, Weights]]:
        """The names of all weights at or below this place, sorted, each with its place."""
        inside = f"{self.name}." if self.name else ""
        for name in sorted(self._checkpoint):
            if name == self.name or name.startswith(inside):
                yield name, Weights(self._checkpoint, name)


def load_weights(paths: Sequence[str | PathLike[str]]) -> Weights:
    """Open checkpoint files for walking.

    Args:
        paths: safetensors files of one folder, or one `*.index.json`.

    Raises:
        ValueError: No file is given, one has another format, they lie in several folders, or one is malformed.
    """
    files = [Path(path) for path in paths]
    folders = {file.parent for file in files} or {Path()}
    if len(folders) > 1:
        raise ValueError(f"the files must lie in one folder, given were {', '.join(map(str, files))}")
    return Weights(Checkpoint(LocalStore(folders.pop()), [file.name for file in files]))
