"""Asks a server through the openai package and LiteLLM; run by their environment, prints JSON, knows no tidemill."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any

import litellm
import openai
from litellm import acompletion, completion, embedding

litellm.suppress_debug_info = True
MESSAGES: Any = [{"role": "user", "content": "hi"}]
ASKED: Any = {"model": "talker", "messages": MESSAGES, "temperature": 0, "max_tokens": 12}


def by_openai(base: str) -> dict[str, Any]:
    client = openai.OpenAI(base_url=base, api_key="any", max_retries=0)
    whole = client.chat.completions.create(**ASKED, logprobs=True, top_logprobs=2)
    stream = client.chat.completions.create(**ASKED, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    completed = client.completions.create(model="talker", prompt="once", temperature=0, max_tokens=5, n=2)
    vectors = client.embeddings.create(model="words", input=["a", "bc"])
    floats = client.embeddings.create(model="words", input="a", encoding_format="float")
    return {
        "models": [model.id for model in client.models.list()],
        "model": client.models.retrieve("talker").id,
        "whole": whole.choices[0].message.content,
        "logprobs": len(whole.choices[0].logprobs.content[0].top_logprobs),
        "streamed": "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
        "finish": [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1],
        "usage": chunks[-1].usage.total_tokens == whole.usage.total_tokens,
        "completed": [choice.text for choice in completed.choices],
        "vectors": [one.embedding for one in vectors.data],
        "floats": floats.data[0].embedding,
        "extra": client.chat.completions.create(**ASKED, extra_body={"top_k": 1}).choices[0].message.content,
    }


def refusals(base: str) -> dict[str, Any]:
    client = openai.OpenAI(base_url=base, api_key="any", max_retries=0)
    calls: dict[str, Any] = {
        "unknown": ASKED | {"model": "nobody"},
        "field": ASKED | {"temperature": 9},
        "long": ASKED | {"max_tokens": 9999},
        "tools": ASKED | {"tools": [{"type": "function", "function": {"name": "f"}}]},
    }
    found = {}
    for name, call in calls.items():
        for streams in (False, True):
            try:
                client.chat.completions.create(**call, stream=streams)
            except openai.APIStatusError as error:
                found[f"{name} {streams}"] = [type(error).__name__, error.status_code, error.code, error.param]
    return found


async def cancelled(base: str) -> bool:
    """Whether a call that is given up leaves the client fit for the next."""
    async with openai.AsyncOpenAI(base_url=base, api_key="any", max_retries=0) as client:
        long = ASKED | {"max_tokens": 200, "extra_body": {"ignore_eos": True}}
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(client.chat.completions.create(**long), 0.02)
        stream = await client.chat.completions.create(**long, stream=True)
        async for _ in stream:
            break
        await stream.close()
        answer = await client.chat.completions.create(**ASKED)
        return bool(answer.choices)


def by_litellm(base: str) -> dict[str, Any]:
    common: Any = {"api_base": base, "api_key": "any", "num_retries": 0}
    asked = ASKED | {"model": "openai/talker"}
    chunks = list(completion(**asked, **common, stream=True, stream_options={"include_usage": True}))
    found: dict[str, Any] = {
        "whole": completion(**asked, **common).choices[0].message.content,
        "streamed": "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
        "usage": [chunk.usage.total_tokens for chunk in chunks if getattr(chunk, "usage", None)][-1] > 0,
        "vectors": [one["embedding"] for one in embedding(model="openai/words", input=["a"], **common).data],
    }
    for name, call in {"unknown": asked | {"model": "openai/nobody"}, "long": asked | {"max_tokens": 9999}}.items():
        try:
            completion(**call, **common)
        except Exception as error:
            found[name] = type(error).__name__

    async def whole() -> str:
        return str((await acompletion(**asked, **common)).choices[0].message.content)

    found["async"] = asyncio.run(whole())
    return found


if __name__ == "__main__":
    base = f"http://{sys.argv[1]}/v1"
    answers = {
        "openai": by_openai(base),
        "refusals": refusals(base),
        "cancelled": asyncio.run(cancelled(base)),
        "litellm": by_litellm(base),
    }
    print(json.dumps(answers))
