"""The models that can be built by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidemill.modelzoo import minilm, mlp

__all__ = ["ZOO", "ZooModel"]


@dataclass(frozen=True, slots=True)
class ZooModel:
    """A ready model.

    Attributes:
        summary: What it does, in one line.
        build: Writes its bundle, and what belongs to it, into a model repository.
    """

    summary: str
    build: Callable[[Path], None]


ZOO: dict[str, ZooModel] = {
    "minilm": ZooModel("sentence embeddings: all-MiniLM-L6-v2, as token ids and as text", minilm.build),
    "mlp": ZooModel("the gated MLP of the README, with random weights", mlp.build),
}
