"""What a caller wants generated, and what he gets of it, piece by piece; knows neither wire nor model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tidemill.errors import InvalidArgument

__all__ = ["Delta", "Finish", "GenerationRequest", "Likely", "SamplingOptions", "TokenChoice"]

_MOST_LIKELY = 20


def _require(name: str, value: float, low: float, high: float, *, open_below: bool = False) -> None:
    # A NaN compares as false with everything.
    fits = low < value <= high if open_below else low <= value <= high
    if not fits:
        least = f"more than {low:g}" if open_below else f"{low:g}"
        raise InvalidArgument(f"{name} is {value:g}, expected {least} to {high:g}")


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How the next token is drawn from the model's logits.

    Attributes:
        temperature: What logits are divided by; 0 always takes the most probable token.
        top_k: Only so many of the most probable tokens are drawn from; 0 for all.
        top_p: Only the most probable tokens that together have this probability (Holtzman et al., 2020).
        min_p: Only tokens at least so probable, as a share of the most probable one.
        repetition_penalty: What the logits of tokens that are in the text are divided by, multiplied if negative
            (Keskar et al., 2019).
        presence_penalty: Taken off the logits of tokens that were generated.
        frequency_penalty: Taken off for each time that they were.
        logit_bias: Added to the logits of single tokens.
        seed: Makes the draws the same at every call, whatever else is generated; None draws anew.

    Raises:
        InvalidArgument: A value is out of its range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        _require("temperature", self.temperature, 0.0, 100.0)
        _require("top_k", self.top_k, -1, 1 << 31)
        _require("top_p", self.top_p, 0.0, 1.0, open_below=True)
        _require("min_p", self.min_p, 0.0, 1.0)
        _require("repetition_penalty", self.repetition_penalty, 0.0, 100.0, open_below=True)
        _require("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _require("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        for token, bias in self.logit_bias.items():
            _require(f"logit_bias[{token}]", bias, -100.0, 100.0)

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature == 0.0 or self.top_k == 1

    @property
    def changes_logits(self) -> bool:
        """Whether logits depend on what is in the text, or are biased."""
        return bool(
            self.logit_bias or self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        )


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One text to go on with.

    Attributes:
        prompt: The tokens to begin with, at least one.
        max_tokens: How many tokens are generated at most.
        min_tokens: Before so many the text does not end by itself.
        stop: Texts that end the generation when they come up; they are not part of the answer.
        stop_tokens: Tokens that do.
        ignore_eos: Whether the model's own end is gone over.
        sampling: How tokens are drawn.
        logprobs: How many of the most probable tokens are told beside each token, with logarithms of probabilities;
            None tells none, not even the token's own.
        schema: What the text must match, in the form that `grammar.parse` takes; None for anything.

    Raises:
        InvalidArgument: A value is out of its range.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_tokens: frozenset[int] = frozenset()
    ignore_eos: bool = False
    sampling: SamplingOptions = SamplingOptions()
    logprobs: int | None = None
    schema: str | None = None

    def __post_init__(self) -> None:
        if not self.prompt:
            raise InvalidArgument("the prompt has no tokens; send some text")
        _require("max_tokens", self.max_tokens, 1, 1 << 31)
        _require("min_tokens", self.min_tokens, 0, self.max_tokens)
        if self.logprobs is not None:
            _require("logprobs", self.logprobs, 0, _MOST_LIKELY)
        if not all(self.stop):
            raise InvalidArgument("stop holds an empty text, which would end every generation at once")


class Finish(Enum):
    """Why a generation came to its end."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Likely:
    """A token and the natural logarithm of its probability."""

    token: int
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """One generated token.

    Attributes:
        token: The token.
        logprob: The natural logarithm of its probability, before temperature and penalties; None if not asked for.
        likely: The most probable tokens in its place.
    """

    token: int
    logprob: float | None = None
    likely: tuple[Likely, ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """What one step added.

    Attributes:
        text: Text that is certain by now; "" while a character or a stop text may still become whole.
        choices: The tokens, in order.
        finish: Why there is no more; None if there is.
        cached: How many tokens of the prompt were in the cache already.
    """

    text: str
    choices: tuple[TokenChoice, ...] = ()
    finish: Finish | None = None
    cached: int = 0
