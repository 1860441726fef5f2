"""What model.yaml says of the generation of texts; knows nothing of how it is done."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidemill.bundle.section import Count, Section

__all__ = ["GenerationConfig"]


class GenerationConfig(Section):
    """A decoder over a cache of slots, which takes and gives text.

    Attributes:
        slots: How many texts are generated at the same time.
        capacity: How many tokens a text may have, its prompt included.
        tokenizer: The tokenizer.json, relative to model.yaml.
        chat_template: The Jinja template that writes a talk as text, relative to model.yaml; without the file the
            model does not talk.
        ends: The tokens by which the model ends a text, as they are called in the tokenizer.
        max_tokens: How many tokens are generated if a request does not say; None for as many as there is room for.
        max_waiting: How many texts may wait for a slot.
        chunk: How many tokens of a prompt are read at once while other texts are generated; None lets the server
            measure what fits into `max_gap_milliseconds`.
        max_gap_milliseconds: How long other texts may wait for a prompt to be read.
        niceness: How far its threads stand back behind those of other models on the same processors, from 0 for not at
            all to 19; heeded on Linux.
        temperature: That of requests that do not say.
        top_p: That of requests that do not say.
    """

    slots: Count = 8
    capacity: Count = 2048
    tokenizer: str = "tokenizer.json"
    chat_template: str = "chat_template.jinja"
    ends: tuple[str, ...] = ()
    max_tokens: Count | None = None
    max_waiting: Count = 1024
    chunk: Count | None = None
    max_gap_milliseconds: Count = 150
    niceness: Annotated[int, Field(ge=0, le=19)] = 10
    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
