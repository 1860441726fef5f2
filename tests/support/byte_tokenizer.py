"""A tokenizer of bytes: small, and like that of a real model in every way that matters here."""

from __future__ import annotations

import json

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from tidemill.generation.tokenizer import TextTokenizer

__all__ = ["END", "SIZE", "byte_tokenizer", "byte_tokenizer_file"]

END, TALK = 256, 257
SIZE = 258


def byte_tokenizer_file() -> str:
    """A tokenizer.json with one token a byte (not in their order), <end> and <talk>."""
    alphabet = sorted(ByteLevel.alphabet())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    document = {
        "version": "1.0",
        "added_tokens": [{"id": END, "content": "<end>", **flags}, {"id": TALK, "content": "<talk>", **flags}],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {
            "type": "BPE",
            "vocab": {char: place for place, char in enumerate(alphabet)} | {"<end>": END, "<talk>": TALK},
            "merges": [],
        },
    }
    return json.dumps(document)


def byte_tokenizer() -> TextTokenizer:
    """The same, ready."""
    return TextTokenizer(Tokenizer.from_str(byte_tokenizer_file()))
