"""The API that OpenAI's clients speak: talks, completions, embeddings and the list of models."""

from tidemill.serving.http.openai.routes import openai_routes

__all__ = ["openai_routes"]
