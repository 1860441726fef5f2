"""The routes of OpenAI's API, from bytes to bytes; knows models only through the service."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from tidemill.errors import Cancelled, InvalidArgument
from tidemill.generation.request import GenerationRequest
from tidemill.repository.served import ServedModel
from tidemill.repository.served_generator import ServedGenerator
from tidemill.serving.http.body import decompress, read_body
from tidemill.serving.http.events import send_events
from tidemill.serving.http.infer import while_connected
from tidemill.serving.http.openai.embeddings import embed
from tidemill.serving.http.openai.failure import Refused, error_response, explain
from tidemill.serving.http.openai.paths import OPENAI_PATHS
from tidemill.serving.http.openai.schema import ChatRequest, CompletionRequest, EmbeddingRequest, Requested
from tidemill.serving.http.openai.texts import Texts
from tidemill.serving.http.openai.wanted import chat_wanted, completions_wanted
from tidemill.serving.http.openai.written import Chat, Completion, Head, Writer
from tidemill.serving.service import Service

__all__ = ["openai_routes"]

_Body = TypeVar("_Body", bound=BaseModel)
_Answer = Callable[[Scope, Receive, Send], Awaitable[None]]


def openai_routes(service: Service) -> list[BaseRoute]:
    """The routes that POST."""
    face = _Face(service)
    answers: Sequence[_Answer] = (face.chat, face.completion, face.embedding)
    return [Route(path, _Told(answer), methods=["POST"]) for path, answer in zip(OPENAI_PATHS, answers, strict=True)]


class _Told:
    """An ASGI application that tells errors as OpenAI's clients read them."""

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._answer(scope, receive, noting)
        except Cancelled:
            # Nobody is there to be told.
            if not begun:
                await error_response(Cancelled("the client went away"))(scope, receive, send)
        except Exception as error:
            if begun:
                raise
            await error_response(error)(scope, receive, send)


class _Face:
    """Answers each kind of request."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST /v1/chat/completions."""
        body = await self._read(ChatRequest, scope, receive)
        with self._service.track("rest", body.model, "", Headers(scope=scope)) as admitted:
            model = _generator(admitted.served).model
            wanted = [await chat_wanted(body, model)]
            await self._generate(body, admitted.served, (wanted, Chat(model.tokenizer)), (scope, receive, send))

    async def completion(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST /v1/completions."""
        body = await self._read(CompletionRequest, scope, receive)
        with self._service.track("rest", body.model, "", Headers(scope=scope)) as admitted:
            model = _generator(admitted.served).model
            wanted = await completions_wanted(body, model)
            echoes = [model.tokenizer.decode(one.prompt) for one in wanted for _ in range(body.n or 1)]
            writer = Completion(model.tokenizer, echoes if body.echo else ())
            await self._generate(body, admitted.served, (wanted, writer), (scope, receive, send))

    async def embedding(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST /v1/embeddings."""
        body = await self._read(EmbeddingRequest, scope, receive)
        with self._service.track("rest", body.model, "", Headers(scope=scope)) as admitted:
            answer = await embed(self._service, admitted.served, body)
            await _json(answer)(scope, receive, send)

    async def _generate(
        self,
        body: Requested,
        served: ServedModel | None,
        work: tuple[Sequence[GenerationRequest], Writer],
        channel: tuple[Scope, Receive, Send],
    ) -> None:
        (wanted, writer), (scope, receive, send) = work, channel
        generator = _generator(served)
        head = Head(f"{_PREFIX[writer.kind]}-{secrets.token_hex(12)}", int(time.time()), body.model)
        with generator.held():
            texts = await Texts.begin(generator.model, _each(wanted, body.n or 1), head, writer)
            if body.stream:
                usage = bool(body.stream_options and body.stream_options.include_usage)
                await send_events(texts.events(usage=usage), receive, send, done=b"[DONE]")
            else:
                await _json(await while_connected(receive, texts.whole()))(scope, receive, send)

    async def _read(self, form: type[_Body], scope: Scope, receive: Receive) -> _Body:
        limit, headers = self._service.config.max_request_bytes, Headers(scope=scope)
        try:
            raw = await decompress(await read_body(receive, limit), headers.get("content-encoding", ""), limit)
            given = orjson.loads(raw)
            if not isinstance(given, dict):
                raise InvalidArgument(f"the body is a {type(given).__name__}, expected a JSON object")
            return form.model_validate(given)
        except ValidationError as error:
            fault: Exception = explain(error)
        except orjson.JSONDecodeError as error:
            fault = InvalidArgument(f"the body is not JSON: {error}")
        except InvalidArgument as error:
            fault = error
        self._service.metrics.unknown.on_request("rest", "invalid_argument", 0.0)
        raise fault


_PREFIX = {"chat.completion": "chatcmpl", "text_completion": "cmpl"}


def _generator(served: ServedModel | None) -> ServedGenerator:
    if not isinstance(served, ServedGenerator):
        name = served.name if served else ""
        raise Refused("model", f"{name!r} does not generate text; GET /v2/repository/index names the models")
    return served


def _each(wanted: Sequence[GenerationRequest], count: int) -> list[GenerationRequest]:
    """Every prompt so often, each with a seed of its own where one was given."""
    return [_reseeded(request, number) for request in wanted for number in range(count)]


def _reseeded(request: GenerationRequest, number: int) -> GenerationRequest:
    seed = request.sampling.seed
    if seed is None or not number:
        return request
    return replace(request, sampling=replace(request.sampling, seed=(seed + number) % 2**64))


def _json(body: dict[str, object]) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")
