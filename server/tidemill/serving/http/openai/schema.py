"""What OpenAI's clients send, field by field; what is not known is ignored, what is known and not offered is refused.

Source: the OpenAPI document of OpenAI's API, and the fields that clients of vLLM and llama.cpp send beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

__all__ = ["ChatRequest", "CompletionRequest", "EmbeddingRequest", "Message", "Requested", "StreamOptions"]

_Count = Annotated[int, Field(strict=True, ge=1)]
_Tokens = list[Annotated[int, Field(strict=True, ge=0)]]


class _Loose(BaseModel):
    """Clients add fields of their own."""

    model_config = ConfigDict(extra="ignore")


class StreamOptions(_Loose):
    """How a stream is written."""

    include_usage: bool = False


class Requested(_Loose):
    """What talks and completions have in common."""

    model: str
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    n: Annotated[int, Field(strict=True, ge=1, le=16)] | None = None
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
    seed: Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: Annotated[dict[int, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=1024)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    stop_token_ids: _Tokens | None = None
    structured_outputs: dict[str, Any] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end a generation."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class Message(_Loose):
    """One turn of a talk."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None

    @field_validator("content")
    @classmethod
    def _check_parts(cls, content: str | list[dict[str, Any]] | None) -> str | list[dict[str, Any]] | None:
        for part in content if isinstance(content, list) else ():
            if part.get("type") != "text" or not isinstance(part.get("text"), str):
                kind = part.get("type")
                raise ValueError(f"this server takes parts of the type 'text' only, not {kind!r}")
        return content

    @property
    def text(self) -> str:
        """The content as one text."""
        if isinstance(self.content, list):
            return "".join(part["text"] for part in self.content)
        return self.content or ""


class ChatRequest(Requested):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: _Count | None = None
    max_completion_tokens: _Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(strict=True, ge=0, le=20)] | None = None
    response_format: dict[str, Any] | None = None
    tools: Sequence[Any] | None = None
    tool_choice: Any = None
    functions: Sequence[Any] | None = None
    function_call: Any = None
    audio: Any = None
    modalities: list[str] | None = None


class CompletionRequest(Requested):
    """POST /v1/completions."""

    prompt: str | list[str] | _Tokens | list[_Tokens] = "<|endoftext|>"
    max_tokens: _Count | None = 16
    logprobs: Annotated[int, Field(strict=True, ge=0, le=20)] | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """Each prompt on its own."""
        prompt = self.prompt
        if isinstance(prompt, str) or not prompt or isinstance(prompt[0], int):
            return [prompt]  # type: ignore[list-item]
        return list(prompt)


class EmbeddingRequest(_Loose):
    """POST /v1/embeddings."""

    model: str
    input: str | Annotated[list[str], Field(min_length=1, max_length=2048)] | _Tokens | list[_Tokens]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
