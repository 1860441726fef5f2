"""Where OpenAI's API is, by name, for those who need not know what it does."""

from __future__ import annotations

__all__ = ["OPENAI_PATHS"]

OPENAI_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
