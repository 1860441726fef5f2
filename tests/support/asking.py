"""One question over either face, and its answer told alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
import httpx
import numpy as np

from tidemill.protocol import messages, rpc

__all__ = ["Ask", "Told", "asking", "body", "message"]

_WIRE = {"float32": "FP32", "float64": "FP64", "int64": "INT64"}


class Told(NamedTuple):
    """What a caller got: `fault` is the reason of a refusal, `code` its status in the words of the face."""

    code: str
    outputs: dict[str, np.ndarray[Any, Any]]
    id: str = ""
    fault: str = ""
    parameters: dict[str, Any] = {}  # noqa: RUF012 (never changed)


Ask = Callable[..., Awaitable[Told]]
"""`ask(model, x, id=, outputs=, **parameters)`."""


@asynccontextmanager
async def asking(face: str, server: Any, headers: Mapping[str, str] | None = None) -> AsyncIterator[Ask]:
    """Asks a server over "rest" or "grpc"; each concurrent REST question has a connection of its own.

    The headers, or metadata, go with every question.
    """
    if face == "rest":
        limits = httpx.Limits(max_connections=None)
        base = f"http://127.0.0.1:{server.http_port}"
        async with httpx.AsyncClient(base_url=base, timeout=60, limits=limits, headers=headers) as client:
            yield _over_rest(client)
    else:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            yield _over_grpc(channel, tuple((headers or {}).items()))


def body(x: Any, identifier: str = "", outputs: tuple[str, ...] = (), **parameters: Any) -> dict[str, Any]:
    """An infer request as JSON."""
    given = {"name": "x", "datatype": _WIRE[x.dtype.name], "shape": list(x.shape), "data": x.ravel().tolist()}
    told: dict[str, Any] = {"inputs": [given], "parameters": parameters}
    if identifier:
        told["id"] = identifier
    return told | ({"outputs": [{"name": name} for name in outputs]} if outputs else {})


def message(model: str, x: Any, identifier: str = "", outputs: tuple[str, ...] = (), **parameters: Any) -> Any:
    """The same as a protobuf message."""
    asked = messages.ModelInferRequest(model_name=model, id=identifier, raw_input_contents=[x.tobytes()])
    asked.inputs.add(name="x", datatype=_WIRE[x.dtype.name], shape=x.shape)
    for name in outputs:
        asked.outputs.add(name=name)
    for name, value in parameters.items():
        kind = "bool_param" if isinstance(value, bool) else "int64_param"
        setattr(asked.parameters[name], kind, value)
    return asked


def _over_rest(client: httpx.AsyncClient) -> Ask:
    async def ask(model: str, x: Any, **more: Any) -> Told:
        answer = await client.post(f"/v2/models/{model}/infer", json=body(x, more.pop("id", ""), **more))
        told = answer.json()
        if answer.status_code != 200:
            return Told(str(answer.status_code), {}, fault=told["error"])
        arrays = {one["name"]: np.array(one["data"]).reshape(one["shape"]) for one in told["outputs"]}
        return Told("OK", arrays, told.get("id", ""), parameters=told.get("parameters", {}))

    return ask


def _over_grpc(channel: Any, metadata: tuple[tuple[str, str], ...]) -> Ask:
    method = channel.unary_unary(
        rpc.method_path("ModelInfer"),
        request_serializer=lambda given: given.SerializeToString(),
        response_deserializer=messages.ModelInferResponse.FromString,
    )

    async def ask(model: str, x: Any, **more: Any) -> Told:
        try:
            answer = await method(message(model, x, more.pop("id", ""), **more), timeout=60, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return Told(error.code().name, {}, fault=str(error.details()))
        arrays = {
            one.name: np.frombuffer(raw, {wire: name for name, wire in _WIRE.items()}[one.datatype]).reshape(one.shape)
            for one, raw in zip(answer.outputs, answer.raw_output_contents, strict=True)
        }
        parameters = {name: value.int64_param for name, value in answer.parameters.items()}
        return Told("OK", arrays, answer.id, parameters=parameters)

    return ask
