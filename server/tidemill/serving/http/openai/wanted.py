"""From the fields of a request to what is to be generated; knows neither streams nor sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidemill.errors import TidemillError
from tidemill.generation.grammar import json_grammar, lark_grammar, regex_grammar
from tidemill.generation.request import GenerationRequest, SamplingOptions
from tidemill.repository.text_model import TextModel
from tidemill.serving.http.openai.failure import Refused
from tidemill.serving.http.openai.schema import ChatRequest, CompletionRequest, Requested

__all__ = ["chat_wanted", "completions_wanted"]


async def chat_wanted(body: ChatRequest, model: TextModel) -> GenerationRequest:
    """What a talk asks for.

    Raises:
        Refused: A field asks for what is not offered.
        TidemillError: The talk does not fit the model.
    """
    _check_chat(body)
    prompt = await asyncio.to_thread(
        model.read_talk, [_message(message.role, message.text) for message in body.messages]
    )
    limit = body.max_completion_tokens or body.max_tokens
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    return await _wanted(body, model, prompt, (limit, logprobs), body.response_format)


async def completions_wanted(body: CompletionRequest, model: TextModel) -> list[GenerationRequest]:
    """What a completion asks for, a request for each prompt; raises as `chat_wanted` does."""
    if body.suffix:
        raise Refused("suffix", "this server only goes on with a text, it does not fill gaps")
    if body.best_of not in (None, 1, body.n):
        raise Refused("best_of", "this server does not choose among texts; leave it out, or make it n")
    prompts = [await asyncio.to_thread(model.read_prompt, prompt) for prompt in body.prompts]
    if not prompts or not all(prompts):
        raise Refused("prompt", "a prompt without tokens cannot be gone on with")
    return [await _wanted(body, model, prompt, (body.max_tokens, body.logprobs), None) for prompt in prompts]


def _message(role: str, text: str) -> dict[str, str]:
    return {"role": "system" if role == "developer" else role, "content": text}


def _check_chat(body: ChatRequest) -> None:
    refused: Mapping[str, Any] = {
        "tools": body.tools,
        "functions": body.functions,
        "audio": body.audio,
        "modalities": [kind for kind in body.modalities or () if kind != "text"],
    }
    for name, value in refused.items():
        if value:
            raise Refused(name, "this server does not offer it; leave it out")
    for number, message in enumerate(body.messages):
        if message.role not in ("system", "developer", "user", "assistant"):
            expected = "expected system, developer, user or assistant"
            raise Refused(f"messages.{number}.role", f"{message.role!r} is not offered, {expected}")
    if body.top_logprobs and not body.logprobs:
        raise Refused("top_logprobs", "logprobs must be true to have any")


async def _wanted(
    body: Requested,
    model: TextModel,
    prompt: Sequence[int],
    asked: tuple[int | None, int | None],
    form: Mapping[str, Any] | None,
) -> GenerationRequest:
    limit, logprobs = asked
    most = model.room(prompt, limit)
    return GenerationRequest(
        prompt=tuple(prompt),
        max_tokens=most,
        min_tokens=min(body.min_tokens or 0, most),
        stop=body.stops,
        stop_tokens=frozenset(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        sampling=_sampling(body, model),
        logprobs=logprobs,
        schema=await asyncio.to_thread(_grammar, form, body.structured_outputs),
    )


def _sampling(body: Requested, model: TextModel) -> SamplingOptions:
    given = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": None if body.top_k == -1 else body.top_k,
        "min_p": body.min_p,
        "repetition_penalty": body.repetition_penalty,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "logit_bias": body.logit_bias,
        "seed": None if body.seed is None else body.seed % 2**64,
    }
    defaults: dict[str, Any] = {"temperature": model.config.temperature, "top_p": model.config.top_p}
    return SamplingOptions(**(defaults | {name: value for name, value in given.items() if value is not None}))


def _grammar(form: Mapping[str, Any] | None, structured: Mapping[str, Any] | None) -> str | None:
    """The grammar of `response_format`, or of `structured_outputs` as vLLM has it."""
    if form and form.get("type") not in (None, "text"):
        return _named("response_format", lambda: _of_format(form))
    if structured:
        return _named("structured_outputs", lambda: _of_structure(structured))
    return None


def _of_format(form: Mapping[str, Any]) -> str:
    kind = form["type"]
    if kind == "json_object":
        return json_grammar(None)
    schema = form.get("json_schema")
    if kind != "json_schema" or not isinstance(schema, Mapping) or not isinstance(schema.get("schema"), Mapping):
        raise Refused(
            "response_format", "expected the type text, json_object, or json_schema with {json_schema: {schema: ...}}"
        )
    return json_grammar(schema["schema"])


def _of_structure(structured: Mapping[str, Any]) -> str:
    kinds: dict[str, Callable[[Any], str]] = {"json": json_grammar, "regex": regex_grammar, "grammar": lark_grammar}
    name = next((name for name in kinds if structured.get(name)), None)
    if name is None or not isinstance(structured[name], Mapping if name == "json" else str):
        raise Refused("structured_outputs", "expected one of json (a schema), regex and grammar (Lark's form)")
    return kinds[name](structured[name])


def _named(param: str, make: Any) -> str:
    try:
        return str(make())
    except Refused:
        raise
    except TidemillError as error:
        error.param = param  # type: ignore[attr-defined]
        raise
