"""Text to tokens and back, by the tokenizer file that belongs to a model; knows nothing of the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine

__all__ = ["TextTokenizer", "TextWriter"]


class TextTokenizer:
    """A tokenizer; safe to use from several threads."""

    def __init__(self, engine: Engine) -> None:
        """Take over a tokenizer; its padding and truncation are turned off."""
        engine.no_padding()
        engine.no_truncation()
        self._engine = engine

    @classmethod
    def open(cls, path: Path) -> TextTokenizer:
        """Read a tokenizer.json.

        Raises:
            ConfigError: There is none, or it cannot be read, or the tokenizers package is missing.
        """
        if not path.is_file():
            raise ConfigError(f"generation.tokenizer: there is no file {path}")
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise ConfigError("generation needs the tokenizers package: pip install 'tidemill[generation]'") from None
        try:
            return cls(Tokenizer.from_file(str(path)))
        except Exception as error:  # tokenizers raises plain Exception
            raise ConfigError(f"generation.tokenizer: {path} is no tokenizer file: {error}") from None

    @property
    def document(self) -> str:
        """The content of its tokenizer.json."""
        return self._engine.to_str()

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return self._engine.get_vocab_size()

    def encode(self, text: str, *, special: bool = True) -> tuple[int, ...]:
        """The tokens of a text.

        Args:
            text: The text; special tokens that are written in it become those.
            special: Whether the file's own frame, such as a token for the beginning, is put around it.
        """
        return tuple(self._engine.encode(text, add_special_tokens=special).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return self._engine.decode(list(tokens), skip_special_tokens=True)

    def piece(self, token: int) -> bytes:
        """The bytes of one token, which need not be a whole character; a special token is what it is called."""
        text = self._engine.decode([token], skip_special_tokens=False)
        if "\ufffd" not in text:
            return text.encode()
        return _byte_level(self._engine.id_to_token(token) or "")

    def token(self, text: str) -> int | None:
        """The token that is called so; None if there is none."""
        return self._engine.token_to_id(text)

    def writer(self) -> TextWriter:
        """What turns the tokens of one text into text as they come."""
        return TextWriter(self._engine)


class TextWriter:
    """Text of tokens that come one by one, cut only between whole characters."""

    def __init__(self, engine: Engine) -> None:
        from tokenizers.decoders import DecodeStream

        self._engine = engine
        self._stream = DecodeStream(skip_special_tokens=True)
        self._waiting: list[int] = []

    def feed(self, token: int) -> str:
        """The text that is whole with this token; "" if a character has more to come."""
        text = self._stream.step(self._engine, token)
        if text is None:
            self._waiting.append(token)
            return ""
        self._waiting.clear()
        return str(text)

    def rest(self) -> str:
        """What is left at the end: U+FFFD for a character that never became whole."""
        waiting, self._waiting = self._waiting, []
        return self._engine.decode(waiting, skip_special_tokens=True) if waiting else ""


def _byte_level(token: str) -> bytes:
    """The bytes behind the characters that byte-level tokenizers write (GPT-2's `bytes_to_unicode`)."""
    return bytes(_BYTE_OF[char] for char in token if char in _BYTE_OF)


def _bytes_of_characters() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTE_OF = _bytes_of_characters()
