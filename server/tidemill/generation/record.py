"""What was done in one step, and how long texts took: for those who count."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StepRecord", "TextRecord"]


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of all texts.

    Attributes:
        started: When it began, in the generator's clock, in seconds.
        rows: How many texts got a token by it.
        chunk: How many tokens of a prompt were read.
        decode_seconds: How long the tokens took.
        chunk_seconds: How long the chunk took.
        waiting: How many texts wait for a slot after it.
        running: How many have one.
        tokens: How many tokens of running texts are in the cache.
    """

    started: float
    rows: int
    chunk: int
    decode_seconds: float
    chunk_seconds: float
    waiting: int
    running: int
    tokens: int


@dataclass(frozen=True, slots=True)
class TextRecord:
    """One text that is over.

    Attributes:
        queue_seconds: From its arrival to the first step that heeded it.
        first_seconds: From its arrival to its first token; 0 if it never got one.
        seconds: From its arrival to its end.
        prompt_tokens: Tokens of the prompt.
        cached_tokens: Those of them that were in the cache already.
        tokens: Tokens that were made.
    """

    queue_seconds: float
    first_seconds: float
    seconds: float
    prompt_tokens: int
    cached_tokens: int
    tokens: int

    @property
    def token_seconds(self) -> float:
        """The mean time between two tokens; 0 if there were fewer than two."""
        return (self.seconds - self.first_seconds) / (self.tokens - 1) if self.tokens > 1 else 0.0
