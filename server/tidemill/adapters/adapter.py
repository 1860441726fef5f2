"""What every conversion offers, and which one a model's configuration asks for; knows nothing of serving."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tidemill.bundle.config import AdapterConfig
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["Adapter", "open_adapter"]


class Adapter(Protocol):
    """A conversion that stands before a model's queue."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What callers send, instead of the model's own inputs."""

    def convert(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Turn checked inputs into the model's; may take long and is called off the event loop.

        Raises:
            InvalidArgument: The values cannot be converted; the message names input and element.
        """

    def count_tokens(self, inputs: Mapping[str, Array]) -> int:
        """How many tokens checked inputs become; 0 for what is no text."""


def open_adapter(config: AdapterConfig | None, folder: Path, inputs: tuple[TensorSpec, ...]) -> Adapter | None:
    """The adapter that model.yaml asks for.

    Args:
        config: The `adapter` section.
        folder: The model's folder; files named in `config` must lie in it.
        inputs: What the model takes.

    Raises:
        ConfigError: A file is missing, or the section does not fit the model's inputs.
    """
    if config is not None and config.image is not None:
        # Only a model that declares pictures needs the pillow package.
        from tidemill.adapters.image import ImageAdapter

        return ImageAdapter(config.image, inputs)
    if config is None or config.text is None:
        return None
    # Only a model that declares a text input needs the tokenizers package.
    from tidemill.adapters.text import TextAdapter

    return TextAdapter.open(config.text, folder, inputs)
