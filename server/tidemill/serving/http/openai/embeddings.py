"""Texts as vectors, by any served model that takes text and gives one vector a text; knows no sockets."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from tidemill.dtype import DType
from tidemill.protocol.types import Array, InferRequest, TensorSpec
from tidemill.repository.served import ServedModel
from tidemill.serving.http.openai.failure import Refused
from tidemill.serving.http.openai.schema import EmbeddingRequest
from tidemill.serving.service import Service

__all__ = ["embed"]


async def embed(service: Service, served: ServedModel | None, body: EmbeddingRequest) -> dict[str, Any]:
    """The answer to a request for embeddings.

    Raises:
        Refused: The model makes none, or a field asks for what is not offered.
        TidemillError: The model failed.
    """
    text, vector = _signature(served, body.model)
    texts = _texts(body)
    given = np.empty(len(texts), object)
    given[:] = [one.encode() for one in texts]
    response = await service.infer(InferRequest(body.model, {text.name: given}))
    vectors = np.ascontiguousarray(response.outputs[vector.name], "<f4")
    if body.dimensions not in (None, vectors.shape[1]):
        raise Refused("dimensions", f"this model gives {vectors.shape[1]}, which cannot be changed")
    as_text = body.encoding_format == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _written(row, as_text)}
        for index, row in enumerate(vectors)
    ]
    tokens = served.count_tokens({text.name: given}) if served else 0
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": body.model, "usage": usage}


def _texts(body: EmbeddingRequest) -> list[str]:
    given = [body.input] if isinstance(body.input, str) else body.input
    if not given or not all(isinstance(one, str) for one in given):
        raise Refused("input", "this server takes texts, not tokens of another vocabulary; send a text or several")
    return [str(one) for one in given]


def _signature(served: ServedModel | None, name: str) -> tuple[TensorSpec, TensorSpec]:
    texts = [spec for spec in served.inputs if spec.dtype is DType.string] if served else []
    vectors = [spec for spec in served.outputs if len(spec.shape) == 2 and spec.dtype.is_float()] if served else []
    if served is None or len(texts) != 1 or len(served.inputs) != 1 or not vectors:
        raise Refused("model", f"{name!r} makes no embeddings: it does not take texts and give a vector for each")
    return texts[0], vectors[0]


def _written(row: Array, as_text: bool) -> str | list[float]:
    """float32 in little-endian bytes as base64, or plain numbers."""
    return base64.b64encode(row.tobytes()).decode() if as_text else row.tolist()
