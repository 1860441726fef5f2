"""One text on its way: its tokens, where they are in the cache, and what of it is certain; knows no model."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tidemill.generation.request import Delta, Finish, GenerationRequest, TokenChoice
from tidemill.generation.sampling import Sampler
from tidemill.generation.stops import StopFinder
from tidemill.generation.tokenizer import TextWriter

__all__ = ["Constraint", "Row"]


class Constraint(Protocol):
    """What the tokens of one text must follow."""

    def allowed(self) -> NDArray[np.bool_]:
        """Bool [vocabulary]: which tokens may come next."""

    def accept(self, token: int) -> bool:
        """Take in the next token; whether the text may, or must, end there is seen from `allowed`."""


class Row:
    """A text in the making.

    Attributes:
        request: What is wanted.
        tokens: The prompt and what was generated.
        cached: How many of them are in the cache.
        reused: How many of these were there before.
        gone: Whether nobody wants it any more.
    """

    def __init__(
        self, request: GenerationRequest, writer: TextWriter, ends: frozenset[int], constraint: Constraint | None = None
    ) -> None:
        """Begin with the prompt.

        Args:
            request: What is wanted.
            writer: Makes text of the tokens.
            ends: The tokens by which the model ends a text.
            constraint: What the tokens must follow; None for nothing.
        """
        self.request = request
        self.tokens = list(request.prompt)
        self.cached = 0
        self.reused = 0
        self.gone = False
        self._writer = writer
        self._stops = StopFinder(request.stop)
        self._sampler = Sampler(request.sampling, request.prompt, request.logprobs)
        self._ends = frozenset() if request.ignore_eos else ends
        self._constraint = constraint

    @property
    def made(self) -> int:
        """How many tokens were generated."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def pending(self) -> list[int]:
        """The tokens that are not in the cache."""
        return self.tokens[self.cached :]

    def take(self, logits: NDArray[np.float32]) -> Delta:
        """Go on by one token.

        Args:
            logits: float32 [vocabulary], what the model says after the last token.
        """
        terminal = self._ends | self.request.stop_tokens
        banned = terminal if self.made < self.request.min_tokens else ()
        allowed = self._constraint.allowed() if self._constraint else None
        choice = self._sampler.choose(logits, banned, allowed)
        self.tokens.append(choice.token)
        if self._constraint:
            self._constraint.accept(choice.token)
        if choice.token in terminal:
            return self._last(choice, "", Finish.STOP)
        text, stopped = self._stops.feed(self._writer.feed(choice.token))
        if stopped:
            return Delta(text, (choice,), Finish.STOP, self.reused)
        if self.made >= self.request.max_tokens:
            return self._last(choice, text, Finish.LENGTH)
        return Delta(text, (choice,), None, self.reused)

    def _last(self, choice: TokenChoice, text: str, finish: Finish) -> Delta:
        rest, stopped = self._stops.feed(self._writer.rest())
        held = "" if stopped else self._stops.rest()
        return Delta(text + rest + held, (choice,), Finish.STOP if stopped else finish, self.reused)
