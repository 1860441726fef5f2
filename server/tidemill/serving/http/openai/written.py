"""Generated pieces in the words of OpenAI's API: whole answers, and the chunks of streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from tidemill.generation.request import Delta, TokenChoice
from tidemill.generation.tokenizer import TextTokenizer

__all__ = ["Chat", "Completion", "Head", "Usage", "Writer"]


@dataclass(frozen=True, slots=True)
class Head:
    """What stands in every body: the id, seconds since 1970, the model's name."""

    id: str
    created: int
    model: str

    def body(self, kind: str, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """A body of that kind."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
            "choices": list(choices),
        }


@dataclass(slots=True)
class Usage:
    """Tokens that were read and made, over all choices of an answer."""

    prompt: int = 0
    cached: int = 0
    made: int = 0

    def body(self) -> dict[str, Any]:
        """As the API writes it."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.made,
            "total_tokens": self.prompt + self.made,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


class Writer(ABC):
    """How one of the two kinds of answers is written; `kind` and `chunk_kind` name it."""

    kind = ""
    chunk_kind = ""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer

    def opening(self, _index: int) -> dict[str, Any] | None:
        """The first chunk's choice, before anything was generated; None for none."""
        return None

    @abstractmethod
    def choice(self, index: int, piece: Delta) -> dict[str, Any]:
        """A whole answer's choice."""

    @abstractmethod
    def chunks(self, index: int, piece: Delta) -> list[dict[str, Any]]:
        """The choices of the chunks that a piece makes."""

    def _piece(self, token: int) -> tuple[str, list[int]]:
        """A token as text, with U+FFFD for what is no whole character, and its bytes."""
        raw = self._tokenizer.piece(token)
        return raw.decode(errors="replace"), list(raw)


class Chat(Writer):
    """Talks."""

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def opening(self, index: int) -> dict[str, Any]:
        """Says who talks."""
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def choice(self, index: int, piece: Delta) -> dict[str, Any]:
        """A whole message."""
        message = {"role": "assistant", "content": piece.text, "refusal": None}
        return {"index": index, "message": message, "logprobs": self._logprobs(piece), "finish_reason": _finish(piece)}

    def chunks(self, index: int, piece: Delta) -> list[dict[str, Any]]:
        """The text, then by itself why there is no more."""
        logprobs, made = self._logprobs(piece), []
        if piece.text or logprobs:
            delta = {"content": piece.text}
            made.append({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None})
        if piece.finish:
            made.append({"index": index, "delta": {}, "logprobs": None, "finish_reason": _finish(piece)})
        return made

    def _logprobs(self, piece: Delta) -> dict[str, Any] | None:
        told = [self._told(choice) for choice in piece.choices if choice.logprob is not None]
        return {"content": told, "refusal": None} if told else None

    def _told(self, choice: TokenChoice) -> dict[str, Any]:
        likely = [self._entry(one.token, one.logprob) for one in choice.likely]
        return {**self._entry(choice.token, choice.logprob or 0.0), "top_logprobs": likely}

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        text, raw = self._piece(token)
        return {"token": text, "logprob": logprob, "bytes": raw}


class Completion(Writer):
    """Texts that go on."""

    kind = chunk_kind = "text_completion"

    def __init__(self, tokenizer: TextTokenizer, echoes: Sequence[str] = ()) -> None:
        """Begin.

        Args:
            tokenizer: Tells the text of a token.
            echoes: What stands before the text of each choice.
        """
        super().__init__(tokenizer)
        self._echoes = echoes
        self._offsets = Counter({index: len(echo) for index, echo in enumerate(echoes)})

    def opening(self, index: int) -> dict[str, Any] | None:
        """The prompt, if it is echoed."""
        return self._choice(index, self._echoes[index], None, None) if self._echoes else None

    def choice(self, index: int, piece: Delta) -> dict[str, Any]:
        """The whole text."""
        echo = self._echoes[index] if self._echoes else ""
        return self._choice(index, echo + piece.text, self._logprobs(index, piece), _finish(piece))

    def chunks(self, index: int, piece: Delta) -> list[dict[str, Any]]:
        """The text, with the last why there is no more."""
        logprobs = self._logprobs(index, piece)
        if not (piece.text or logprobs or piece.finish):
            return []
        return [self._choice(index, piece.text, logprobs, _finish(piece))]

    def _choice(self, index: int, text: str, logprobs: Any, finish: str | None) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def _logprobs(self, index: int, piece: Delta) -> dict[str, Any] | None:
        told = [choice for choice in piece.choices if choice.logprob is not None]
        if not told:
            return None
        texts = [self._name(choice.token) for choice in told]
        ends = list(accumulate(map(len, texts), initial=self._offsets[index]))
        self._offsets[index] = ends[-1]
        return {
            "tokens": texts,
            "token_logprobs": [choice.logprob for choice in told],
            "top_logprobs": [
                {self._name(one.token): one.logprob for one in choice.likely} if choice.likely else None
                for choice in told
            ],
            "text_offset": ends[:-1],
        }

    def _name(self, token: int) -> str:
        """A token as text, or as `bytes:` for what is no whole character: tokens that differ have other names."""
        text, raw = self._piece(token)
        return text if "\ufffd" not in text else "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _finish(piece: Delta) -> str | None:
    return piece.finish.value if piece.finish else None
