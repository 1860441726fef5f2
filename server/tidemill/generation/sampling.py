"""The next token drawn from logits, each text with a generator of its own; knows neither model nor text.

A vocabulary has some 50,000 to 250,000 tokens. Sorting it takes longer than all else together, so the tokens to draw
from are found among a few hundred candidates, and all are sorted only where these do not suffice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tidemill.generation.request import Likely, SamplingOptions, TokenChoice

__all__ = ["Sampler"]

_CANDIDATES = 1024

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]


class Sampler:
    """Draws the tokens of one text."""

    def __init__(self, options: SamplingOptions, prompt: Iterable[int], logprobs: int | None = None) -> None:
        """Begin a text.

        Args:
            options: How tokens are drawn.
            prompt: The tokens that stand already.
            logprobs: As in `GenerationRequest`.
        """
        self._options = options
        self._logprobs = logprobs
        self._random = np.random.default_rng(options.seed)
        self._seen = set(prompt) if options.repetition_penalty != 1.0 else set()
        self._made: Counter[int] = Counter()

    def choose(
        self, logits: Floats, banned: Iterable[int] = (), allowed: NDArray[np.bool_] | None = None
    ) -> TokenChoice:
        """Draw a token.

        Args:
            logits: float32 [vocabulary]; not changed.
            banned: Tokens that may not be drawn.
            allowed: bool [vocabulary], which tokens may; None for all.

        Returns:
            The token, which counts as part of the text from now on.
        """
        adapted = self._adapted(logits, tuple(banned), allowed)
        token = int(adapted.argmax()) if self._options.is_greedy else self._draw(adapted)
        self._made[token] += 1
        self._seen.add(token)
        return self._told(logits, token)

    def _adapted(self, logits: Floats, banned: tuple[int, ...], allowed: Mask | None) -> Floats:
        options = self._options
        if not options.changes_logits and not banned and allowed is None:
            return logits
        adapted = logits.copy()
        if options.repetition_penalty != 1.0:
            _penalise(adapted, self._seen, options.repetition_penalty)
        if self._made and (options.presence_penalty or options.frequency_penalty):
            made = np.fromiter(self._made, np.int64)
            counts = np.fromiter(self._made.values(), np.float32)
            adapted[made] -= options.presence_penalty + options.frequency_penalty * counts
        for token, bias in options.logit_bias.items():
            if 0 <= token < len(adapted):
                adapted[token] += bias
        adapted[list(banned)] = -np.inf
        if allowed is not None:
            adapted[~allowed] = -np.inf
        return adapted

    def _draw(self, logits: Floats) -> int:
        options = self._options
        candidates = self._candidates(logits)
        scaled = logits[candidates].astype(np.float64) / options.temperature
        weights = np.exp(scaled - scaled[0])
        # top_p is a share of what top_k has left; without that, of all tokens, candidates or not.
        whole = options.top_k > 0 or len(candidates) == len(logits)
        total = weights.sum() if whole else _total(logits, scaled[0], options.temperature)
        kept = len(weights)
        if options.top_p < 1.0:
            kept = min(kept, int(np.searchsorted(np.cumsum(weights), options.top_p * total)) + 1)
        if options.min_p > 0.0:
            kept = min(kept, int(np.count_nonzero(weights >= options.min_p)))
        bounds = np.cumsum(weights[:kept])
        place = int(np.searchsorted(bounds, self._random.random() * bounds[-1], side="right"))
        return int(candidates[min(place, kept - 1)])

    def _candidates(self, logits: Floats) -> NDArray[np.intp]:
        """Tokens by falling probability, at least those that may be drawn."""
        options = self._options
        if 0 < options.top_k < len(logits):
            return _largest(logits, options.top_k)
        if len(logits) <= _CANDIDATES or (options.top_p == 1.0 and options.min_p == 0.0):
            return np.argsort(-logits, kind="stable")
        found = _largest(logits, _CANDIDATES)
        return found if self._suffice(logits, found) else np.argsort(-logits, kind="stable")

    def _suffice(self, logits: Floats, found: NDArray[np.intp]) -> bool:
        options = self._options
        scaled = logits[found].astype(np.float64) / options.temperature
        weights = np.exp(scaled - scaled[0])
        if options.min_p > 0.0 and weights[-1] < options.min_p:
            return True
        return bool(weights.sum() >= options.top_p * _total(logits, scaled[0], options.temperature))

    def _told(self, logits: Floats, token: int) -> TokenChoice:
        if self._logprobs is None:
            return TokenChoice(token)
        peak = float(logits.max())
        norm = peak + float(np.log(np.exp(logits - peak, dtype=np.float64).sum()))
        best = _largest(logits, self._logprobs) if self._logprobs else ()
        likely = tuple(Likely(int(one), float(logits[one]) - norm) for one in best)
        return TokenChoice(token, float(logits[token]) - norm, likely)


def _penalise(logits: Floats, seen: set[int], penalty: float) -> None:
    tokens = np.fromiter((token for token in seen if token < len(logits)), np.int64)
    values = logits[tokens]
    logits[tokens] = np.where(values > 0, values / penalty, values * penalty)


def _largest(logits: Floats, count: int) -> NDArray[np.intp]:
    """The tokens of the `count` largest logits, the largest first; of equal ones the lowest token."""
    found = np.sort(np.argpartition(logits, -count)[-count:])
    return found[np.argsort(-logits[found], kind="stable")]


def _total(logits: Floats, peak: float, temperature: float) -> float:
    """The sum of exp(logit / temperature - peak) of all tokens."""
    return float(np.exp(logits.astype(np.float64) / temperature - peak).sum())
