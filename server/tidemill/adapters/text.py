"""Text to token ids, by the tokenizer file that belongs to the model; knows nothing of the model but its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tidemill.bundle.config import TextAdapterConfig
from tidemill.dtype import DType
from tidemill.errors import ConfigError, InvalidArgument
from tidemill.protocol.types import Array, TensorSpec

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

__all__ = ["TextAdapter"]

_PAD_TOKENS = ("[PAD]", "<pad>", "<|endoftext|>")


class TextAdapter:
    """Takes BYTES [batch] of UTF-8 and gives token ids and mask of shape [batch, tokens of the longest text]."""

    def __init__(self, tokenizer: Tokenizer, config: TextAdapterConfig, inputs: tuple[TensorSpec, ...]) -> None:
        """Fit a tokenizer to a model.

        Args:
            tokenizer: Taken over: its padding is turned off, its truncation set to `config.max_length`.
            config: Names of the inputs, and the most tokens of one text.
            inputs: The model's inputs, among them `config.ids` and `config.mask`.

        Raises:
            ConfigError: The model has no such inputs, or they are not whole numbers of rank 2.
        """
        self._ids = _token_input(config.ids, inputs)
        self._mask = None if config.mask is None else _token_input(config.mask, inputs)
        self._text = TensorSpec(config.input, DType.string, self._ids.shape[:1])
        replaced = {config.ids, config.mask}
        self.inputs = (self._text, *(spec for spec in inputs if spec.name not in replaced))
        self._pad = _pad_id(tokenizer)
        self._tokenizer = tokenizer
        tokenizer.no_padding()
        limit = _limit(config.max_length, self._ids)
        if limit is not None:
            tokenizer.enable_truncation(limit)

    @classmethod
    def open(cls, config: TextAdapterConfig, folder: Path, inputs: tuple[TensorSpec, ...]) -> TextAdapter:
        """Read the tokenizer file, which must lie in the model's folder.

        Raises:
            ConfigError: The file is missing, is no tokenizer or lies elsewhere, or the tokenizers package is missing.
        """
        path = folder / config.tokenizer
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"adapter.text.tokenizer {config.tokenizer!r} leads out of the model's folder {folder}")
        if not path.is_file():
            raise ConfigError(f"adapter.text.tokenizer: there is no file {path}")
        return cls(_read_tokenizer(path), config, inputs)

    def convert(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Tokenize the texts.

        Args:
            inputs: The text input, BYTES [batch], and inputs that pass through.

        Returns:
            The model's inputs; ids are padded with the tokenizer's padding token, the mask is 1 for tokens, else 0.

        Raises:
            InvalidArgument: A text is not UTF-8.
        """
        texts = [_decoded(self._text.name, row, text) for row, text in enumerate(inputs[self._text.name])]
        encodings = self._tokenizer.encode_batch(texts) if texts else []
        converted = {name: array for name, array in inputs.items() if name != self._text.name}
        converted[self._ids.name] = self._padded(encodings)
        if self._mask is not None:
            converted[self._mask.name] = self._masked(encodings)
        return converted

    def count_tokens(self, inputs: Mapping[str, Array]) -> int:
        """How many tokens the texts have."""
        texts = [_decoded(self._text.name, row, text) for row, text in enumerate(inputs[self._text.name])]
        return sum(map(len, self._tokenizer.encode_batch(texts)))

    def _padded(self, encodings: Sequence[Encoding]) -> Array:
        ids = np.full((len(encodings), self._width(encodings)), self._pad, self._ids.dtype.to_numpy())
        for row, encoding in enumerate(encodings):
            ids[row, : len(encoding)] = encoding.ids
        return ids

    def _masked(self, encodings: Sequence[Encoding]) -> Array:
        assert self._mask is not None
        lengths = np.array([len(encoding) for encoding in encodings], np.int64)
        mask: Array = np.arange(self._width(encodings)) < lengths[:, None]
        return mask.astype(self._mask.dtype.to_numpy())

    def _width(self, encodings: Sequence[Encoding]) -> int:
        declared = self._ids.shape[1]
        # A model without tokens to look at would fail on a text that has none.
        return declared if isinstance(declared, int) else max([1, *map(len, encodings)])


def _read_tokenizer(path: Path) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ConfigError("adapter.text needs the tokenizers package: pip install 'tidemill[zoo]'") from None
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exception
        raise ConfigError(f"adapter.text.tokenizer: {path} is no tokenizer file: {error}") from None


def _token_input(name: str, inputs: tuple[TensorSpec, ...]) -> TensorSpec:
    found = next((spec for spec in inputs if spec.name == name), None)
    listed = ", ".join(map(str, inputs))
    if found is None:
        raise ConfigError(f"adapter.text: the model has no input {name!r}; it has {listed}")
    if len(found.shape) != 2 or not found.dtype.is_integral():
        raise ConfigError(f"adapter.text: input {found} cannot take tokens; expected whole numbers [batch, tokens]")
    return found


def _limit(max_length: int | None, ids: TensorSpec) -> int | None:
    declared = ids.shape[1]
    if not isinstance(declared, int):
        return max_length
    return declared if max_length is None else min(declared, max_length)


def _pad_id(tokenizer: Tokenizer) -> int:
    if tokenizer.padding is not None:
        return int(tokenizer.padding["pad_id"])
    known = (tokenizer.token_to_id(token) for token in _PAD_TOKENS)
    return next((number for number in known if number is not None), 0)


def _decoded(name: str, row: int, text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"input {name!r} is not UTF-8 in element {row}: {error}") from None
