"""A decoder with its tokenizer and template: text in, text out; knows no names of models and no wire."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tidemill.bundle.generation_config import GenerationConfig
from tidemill.engine.instance import Instance
from tidemill.engine.niceness import stand_back
from tidemill.engine.slot_session import SlotSession
from tidemill.errors import ConfigError, InvalidArgument, PromptTooLong, Unsupported
from tidemill.generation.chat import ChatTemplate
from tidemill.generation.generator import Generator, GeneratorOptions, Observers
from tidemill.generation.grammar import GrammarSource
from tidemill.generation.request import GenerationRequest
from tidemill.generation.row import Constraint
from tidemill.generation.tokenizer import TextTokenizer

__all__ = ["TextModel", "open_text_model"]

_CHUNKS = (16, 32, 64, 128, 256, 512, 1024)
_LONGEST_TOKEN = 64
"""Characters; no text has tokens that are longer on average."""
_MEASURED = 64
"""Tokens of the prompt by whose time the chunk is chosen."""


@dataclass(frozen=True, slots=True)
class TextModel:
    """What makes texts.

    Attributes:
        config: How it was configured.
        instance: The loaded graph.
        tokenizer: Text to tokens and back.
        template: Writes talks as text; None if the model does not talk.
        generator: Makes the tokens.
        grammars: Makes constraints.
        options: What was found out at load.
        row_bytes: What the cache of one full text takes.
    """

    config: GenerationConfig
    instance: Instance
    tokenizer: TextTokenizer
    template: ChatTemplate | None
    generator: Generator
    grammars: GrammarSource
    options: GeneratorOptions
    row_bytes: int

    def read_prompt(self, prompt: str | Sequence[int]) -> tuple[int, ...]:
        """The tokens of a prompt that is text, or tokens already.

        Raises:
            InvalidArgument: A token is none of the model's.
            PromptTooLong: The text is so long that it can have no room.
        """
        if isinstance(prompt, str):
            self._check_length(prompt)
            return self.tokenizer.encode(prompt)
        odd = next((token for token in prompt if not 0 <= token < self.generator.vocabulary), None)
        if odd is not None:
            raise InvalidArgument(f"prompt holds the token {odd}; they go from 0 to {self.generator.vocabulary - 1}")
        return tuple(prompt)

    def read_talk(self, messages: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
        """The tokens of a talk, up to where the model is to go on.

        Raises:
            Unsupported: The model does not talk.
            InvalidArgument: Its template refuses the messages.
        """
        if self.template is None:
            raise Unsupported("the model has no chat template, so it does not talk; ask for a completion instead")
        text = self.template.render(messages)
        self._check_length(text)
        return self.tokenizer.encode(text, special=False)

    def _check_length(self, text: str) -> None:
        """Refuse what can have no room before it is read: tokens of megabytes take seconds to find."""
        most = self.config.capacity * _LONGEST_TOKEN
        if len(text) > most:
            raise PromptTooLong(
                f"the prompt has {len(text)} characters, and this model has room for {self.config.capacity} tokens; "
                f"more than {most} characters are not looked at"
            )

    def room(self, prompt: Sequence[int], wanted: int | None) -> int:
        """How many tokens may be generated.

        Args:
            prompt: The tokens to begin with.
            wanted: How many are wanted; None for what the configuration says.

        Raises:
            PromptTooLong: There is no room for so many.
        """
        rest = self.config.capacity - len(prompt)
        count = wanted if wanted is not None else min(self.config.max_tokens or rest, max(rest, 1))
        if count > rest:
            raise PromptTooLong(
                f"this model has room for {self.config.capacity} tokens, but {len(prompt)} are in the prompt and "
                f"{count} are to be generated; shorten the prompt or lower max_tokens"
            )
        return count

    def constrain(self, request: GenerationRequest) -> Constraint | None:
        """What holds a text to its form; takes milliseconds to seconds, so not for the event loop.

        Raises:
            InvalidArgument: The form cannot be held to.
        """
        return self.grammars.constrain(request.schema) if request.schema else None


async def open_text_model(
    instance: Instance,
    config: GenerationConfig,
    folder: Path,
    observers: Observers | None,
    off_loop: Callable[..., Any],
) -> TextModel:
    """Put a loaded graph behind a tokenizer and a generator, and find out how long it takes to read.

    Args:
        instance: The graph.
        config: The section `generation`.
        folder: The model's folder; files named in `config` lie in it.
        observers: Who is told of steps and texts.
        off_loop: Runs a function outside of the event loop, as `asyncio.to_thread`.

    Raises:
        ConfigError: A file is missing or wrong, or the graph is no such decoder.
    """
    session, tokenizer, template = await off_loop(_open_parts, instance, config, folder)
    ends = frozenset(_token(tokenizer, name) for name in config.ends)
    prepare = partial(stand_back, config.niceness)
    options = GeneratorOptions(max_waiting=config.max_waiting, ends=ends, prepare=prepare)
    chunk = config.chunk or await off_loop(_measure_chunk, session, config.max_gap_milliseconds / 1e3)
    options = replace(options, chunk=chunk, lonely_chunk=max(chunk, options.lonely_chunk))
    generator = Generator(session, tokenizer, options, observers)
    grammars = GrammarSource(tokenizer, session.vocabulary, min(ends, default=None))
    return TextModel(config, instance, tokenizer, template, generator, grammars, options, session.row_bytes)


def _open_parts(
    instance: Instance, config: GenerationConfig, folder: Path
) -> tuple[SlotSession, TextTokenizer, ChatTemplate | None]:
    tokenizer = TextTokenizer.open(_within(folder, "tokenizer", config.tokenizer))
    template = ChatTemplate.open(_within(folder, "chat_template", config.chat_template))
    session = SlotSession(instance.session, config.slots, config.capacity)
    if tokenizer.size > session.vocabulary:
        raise ConfigError(
            f"generation.tokenizer has {tokenizer.size} tokens, but the model only {session.vocabulary} logits; it is "
            "another model's"
        )
    return session, tokenizer, template


def _within(folder: Path, field: str, name: str) -> Path:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"generation.{field} {name!r} leads out of the model's folder {folder}")
    return path


def _token(tokenizer: TextTokenizer, name: str) -> int:
    token = tokenizer.token(name)
    if token is None:
        raise ConfigError(f"generation.ends names {name!r}, which the tokenizer does not have")
    return token


def _measure_chunk(session: SlotSession, gap: float) -> int:
    """The largest chunk that is read within the gap; the runs warm the model as well."""
    most = min(_MEASURED, session.capacity)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        session.prefill(0, [0] * most, 0)
        seconds.append(time.perf_counter() - began)
    session.decode([0] * session.slots, [0] * session.slots)
    fitting = [chunk for chunk in _CHUNKS if chunk * min(seconds) / most <= gap]
    return max(fitting, default=_CHUNKS[0])
