"""Which tokens may come next so that a text matches a JSON schema, a regular expression or a grammar: llguidance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemill.errors import InvalidArgument, Unsupported
from tidemill.generation.tokenizer import TextTokenizer

__all__ = ["GrammarSource", "json_grammar", "lark_grammar", "regex_grammar"]


def json_grammar(schema: Mapping[str, Any] | None) -> str:
    """The grammar of JSON that fits a schema; of any JSON object for None.

    Raises:
        InvalidArgument: The schema is none, or uses what cannot be held to.
    """
    guidance = _guidance()
    try:
        grammar = guidance.LLMatcher.grammar_from_json_schema(json.dumps(schema or {"type": "object"}))
    except ValueError as error:
        raise InvalidArgument(f"response_format: the JSON schema cannot be used: {error}") from None
    return _checked(grammar, "the JSON schema")


def regex_grammar(pattern: str) -> str:
    """The grammar of a regular expression; raises as `json_grammar` does."""
    return _checked(_guidance().LLMatcher.grammar_from_regex(pattern), "the regular expression")


def lark_grammar(text: str) -> str:
    """A grammar written in Lark's form; raises as `json_grammar` does."""
    return _checked(_guidance().LLMatcher.grammar_from_lark(text), "the grammar")


class GrammarSource:
    """Makes constraints for one tokenizer and vocabulary."""

    def __init__(self, tokenizer: TextTokenizer, vocabulary: int, end: int | None) -> None:
        """Remember what constraints are made of; nothing is computed before the first.

        Args:
            tokenizer: The tokenizer.
            vocabulary: How many logits there are.
            end: The token that ends a text.
        """
        self._tokenizer, self._vocabulary, self._end = tokenizer, vocabulary, end
        self._known: Any = None

    def constrain(self, grammar: str) -> _Grammar:
        """A constraint for one text; takes milliseconds to seconds.

        Args:
            grammar: What `json_grammar` and the others gave.

        Raises:
            InvalidArgument: The grammar is too large.
            Unsupported: The llguidance package is missing.
        """
        guidance = _guidance()
        if self._known is None:
            self._known = guidance.LLTokenizer(self._tokenizer.document, n_vocab=self._vocabulary, eos_token=self._end)
        matcher = guidance.LLMatcher(self._known, grammar)
        if error := matcher.get_error():
            raise InvalidArgument(f"response_format cannot be used: {error}")
        return _Grammar(matcher, self._vocabulary)


class _Grammar:
    """Implements `row.Constraint`."""

    def __init__(self, matcher: Any, vocabulary: int) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._bits = np.zeros((1, (vocabulary + 31) // 32), np.int32)

    def allowed(self) -> NDArray[np.bool_]:
        from llguidance.numpy import fill_next_token_bitmask

        fill_next_token_bitmask(self._matcher, self._bits)
        bits = np.unpackbits(self._bits.view(np.uint8), bitorder="little")
        return bits[: self._vocabulary].astype(bool)

    def accept(self, token: int) -> bool:
        return bool(self._matcher.consume_token(token))


def _checked(grammar: str, what: str) -> str:
    guidance = _guidance()
    if error := guidance.LLMatcher.validate_grammar(grammar):
        raise InvalidArgument(f"response_format: {what} cannot be used: {error}")
    return str(grammar)


def _guidance() -> Any:
    try:
        import llguidance
    except ImportError:
        raise Unsupported(
            "this server cannot hold a text to a form; its operator can install 'tidemill[structured]'"
        ) from None
    return llguidance
