"""Text made by a served model: over every wire what the model says by itself, whoever else is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from byte_tokenizer import END
from talker import Oracle, write_talker

from tidemill.repository.served_generator import ServedGenerator
from tidemill.serving import Server

StartServer = Callable[..., Any]
Connect = Callable[[Server], httpx.AsyncClient]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("talkers")
    write_talker(repository / "talker", "  chunk: 16")
    return repository


@pytest.fixture(scope="module")
def oracle(models: Path) -> Oracle:
    return Oracle(models / "talker")


@pytest.fixture
async def client(models: Path, start_server: StartServer, connect: Connect) -> httpx.AsyncClient:
    return connect(await start_server(models))


def asked(prompt: str = "once", **fields: Any) -> dict[str, Any]:
    return {"model": "talker", "prompt": prompt, "temperature": 0, "max_tokens": 12, **fields}


def talked(*messages: str, **fields: Any) -> dict[str, Any]:
    turns = [{"role": "user", "content": text} for text in messages or ("hi",)]
    return {"model": "talker", "messages": turns, "temperature": 0, "max_tokens": 12, **fields}


def events(text: str) -> Iterator[Any]:
    for event in text.split("\n\n")[:-1]:
        assert event.startswith("data: ")
        yield json.loads(event[6:]) if event != "data: [DONE]" else None


async def complete(client: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    response = await client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_a_completion_is_what_the_model_says(client: httpx.AsyncClient, oracle: Oracle) -> None:
    answer = await complete(client, asked())
    made = oracle.greedy("once", 12, [END])
    (choice,) = answer["choices"]
    assert choice["text"] == oracle.text(made)
    assert choice["finish_reason"] == ("stop" if made[-1] == END else "length")
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (4, len(made))
    assert usage["total_tokens"] == 4 + len(made)
    assert answer["object"] == "text_completion"


async def test_many_at_once_are_each_as_alone(client: httpx.AsyncClient, oracle: Oracle) -> None:
    prompts = [f"{number} times " * (1 + number % 5) for number in range(16)]
    bodies = [asked(prompt, max_tokens=5 + 9 * (number % 4)) for number, prompt in enumerate(prompts)]
    answers = await asyncio.gather(*(complete(client, body) for body in bodies))
    for body, answer in zip(bodies, answers, strict=True):
        made = oracle.greedy(body["prompt"], body["max_tokens"], [END])
        assert answer["choices"][0]["text"] == oracle.text(made)


async def test_a_talk_is_written_by_its_template(client: httpx.AsyncClient, oracle: Oracle) -> None:
    answer = (await client.post("/v1/chat/completions", json=talked("hi", seed=1))).json()
    made = oracle.greedy("<talk>user:hi<end><talk>assistant:", 12, [END])
    message = answer["choices"][0]["message"]
    assert message == {"role": "assistant", "content": oracle.text(made), "refusal": None}
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    turns = [{"role": "user", "content": parts}]
    again = await client.post("/v1/chat/completions", json=talked() | {"messages": turns})
    assert again.json()["choices"][0]["message"] == message


async def test_a_stream_of_a_talk(client: httpx.AsyncClient, oracle: Oracle) -> None:
    body = talked("hi", stream=True, stream_options={"include_usage": True}, ignore_eos=True, logprobs=True)
    response = await client.post("/v1/chat/completions", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    *chunks, done = events(response.text)
    assert done is None
    first, *middle, last, usage = chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert last["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 12)
    assert all(chunk["usage"] is None for chunk in (first, *middle, last))
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    made = oracle.greedy("<talk>user:hi<end><talk>assistant:", 12)
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in middle) == oracle.text(made)
    told = [entry for chunk in middle for entry in chunk["choices"][0]["logprobs"]["content"]]
    assert [bytes(entry["bytes"]) for entry in told] == [oracle.tokenizer.piece(token) for token in made]


async def test_several_texts_of_a_prompt(client: httpx.AsyncClient, oracle: Oracle) -> None:
    body = asked(n=3, temperature=1.5, seed=4)
    answer = await complete(client, body)
    texts = [choice["text"] for choice in answer["choices"]]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert answer["usage"]["prompt_tokens"] == 4
    assert [choice["text"] for choice in (await complete(client, body))["choices"]] == texts
    streamed = {0: "", 1: "", 2: ""}
    for chunk in events((await client.post("/v1/completions", json=body | {"stream": True})).text):
        for choice in chunk["choices"] if chunk else ():
            streamed[choice["index"]] += choice["text"]
    assert list(streamed.values()) == texts


async def test_prompts_as_lists_and_tokens(client: httpx.AsyncClient, oracle: Oracle) -> None:
    tokens = list(oracle.tokenizer.encode("two"))
    for given in (["once", "two"], [list(oracle.tokenizer.encode("once")), tokens]):
        answer = await complete(client, asked() | {"prompt": given})
        expected = [oracle.text(oracle.greedy(prompt, 12, [END])) for prompt in ("once", "two")]
        assert [choice["text"] for choice in answer["choices"]] == expected
        assert answer["usage"]["prompt_tokens"] == 7
    alone = await complete(client, asked() | {"prompt": tokens, "echo": True})
    assert alone["choices"][0]["text"] == "two" + oracle.text(oracle.greedy("two", 12, [END]))


async def test_stop_texts_are_left_out(client: httpx.AsyncClient, oracle: Oracle) -> None:
    text = oracle.text(oracle.greedy("once", 40))
    stop = text[5:7]
    answer = await complete(client, asked(max_tokens=40, ignore_eos=True, stop=[stop, "never there"]))
    assert answer["choices"][0]["text"] == text[: text.find(stop)]
    assert answer["choices"][0]["finish_reason"] == "stop"
    streamed = await client.post("/v1/completions", json=asked(max_tokens=40, ignore_eos=True, stop=stop, stream=True))
    pieces = [chunk["choices"][0] for chunk in events(streamed.text) if chunk]
    assert "".join(piece["text"] for piece in pieces) == text[: text.find(stop)]
    assert pieces[-1]["finish_reason"] == "stop"


async def test_logprobs_of_completions(client: httpx.AsyncClient, oracle: Oracle) -> None:
    told = (await complete(client, asked(logprobs=2, max_tokens=5, ignore_eos=True)))["choices"][0]["logprobs"]
    made, prompt = oracle.greedy("once", 5), oracle.tokenizer.encode("once")
    for place, token in enumerate(made):
        logits = oracle.logits((*prompt, *made[:place])).astype(np.float64)
        exact = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        assert told["token_logprobs"][place] == pytest.approx(exact[token], abs=1e-4)
        assert len(told["top_logprobs"][place]) == 2
        assert max(told["top_logprobs"][place].values()) == pytest.approx(exact.max(), abs=1e-4)
    assert told["text_offset"][0] == 0


async def test_text_is_held_to_a_form(client: httpx.AsyncClient) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    body = talked("who", response_format=form, max_tokens=60, logit_bias={})
    for seed in range(3):
        drawn = body | {"temperature": 1, "seed": seed}
        choice = (await client.post("/v1/chat/completions", json=drawn)).json()["choices"][0]
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(choice["message"]["content"])["age"], int)
        else:
            assert choice["message"]["content"].lstrip().startswith("{")
    held = await complete(client, asked(structured_outputs={"regex": "(yes|no)!"}))
    assert held["choices"][0]["text"] in ("yes!", "no!")
    assert held["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "code"),
    [
        ("chat/completions", talked() | {"model": "nobody"}, 404, None, "model_not_found"),
        ("chat/completions", talked() | {"messages": []}, 400, "messages", "invalid_argument"),
        ("chat/completions", talked() | {"messages": "hi"}, 400, "messages", "invalid_argument"),
        ("chat/completions", {"model": "talker"}, 400, "messages", "invalid_argument"),
        ("chat/completions", talked(tools=[{"type": "function"}]), 400, "tools", "invalid_argument"),
        ("chat/completions", talked(temperature=3), 400, "temperature", "invalid_argument"),
        ("chat/completions", talked(n=0), 400, "n", "invalid_argument"),
        ("chat/completions", talked(top_logprobs=3), 400, "top_logprobs", "invalid_argument"),
        ("chat/completions", talked(response_format={"type": "xml"}), 400, "response_format", "invalid_argument"),
        (
            "chat/completions",
            talked(response_format={"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}}),
            400,
            "response_format",
            "invalid_argument",
        ),
        ("chat/completions", talked(max_tokens=300), 400, None, "context_length_exceeded"),
        ("completions", asked("x" * 256), 400, None, "context_length_exceeded"),
        ("completions", asked("") | {"prompt": ""}, 400, "prompt", "invalid_argument"),
        ("completions", asked() | {"prompt": [999]}, 400, None, "invalid_argument"),
        ("completions", asked(best_of=5), 400, "best_of", "invalid_argument"),
        ("completions", asked(stop=["a"] * 5), 400, "stop", "invalid_argument"),
        ("completions", asked(stop=[""]), 400, None, "invalid_argument"),
        ("completions", asked(logit_bias={"x": 1}), 400, "logit_bias.x.[key]", "invalid_argument"),
        ("embeddings", {"model": "talker", "input": "x"}, 400, "model", "invalid_argument"),
    ],
)
async def test_what_is_refused_and_how(
    path: str, body: dict[str, Any], status: int, param: str | None, code: str, client: httpx.AsyncClient
) -> None:
    for stream in (False, True):
        response = await client.post(f"/v1/{path}", json=body | {"stream": stream})
        assert response.status_code == status, response.text
        error = response.json()["error"]
        assert (error["param"], error["code"]) == (param, code)
        assert len(error["message"]) > 10
    assert (await complete(client, asked()))["choices"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"model": NaN}'])
async def test_bodies_that_are_no_json_object(content: bytes, client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/chat/completions", content=content)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


async def test_unknown_fields_are_ignored(client: httpx.AsyncClient) -> None:
    body = asked(user="me", metadata={"a": 1}, store=False, service_tier="auto", brand_new=[1])
    assert (await complete(client, body))["choices"]


async def test_who_goes_away_frees_the_slot(models: Path, start_server: StartServer, connect: Connect) -> None:
    server = await start_server(models)
    served = server.service.find("talker")
    assert isinstance(served, ServedGenerator)
    generator = served.model.generator
    body = asked(max_tokens=250, ignore_eos=True)
    async with connect(server).stream("POST", "/v1/completions", json=body | {"stream": True}) as response:
        async for _ in response.aiter_lines():
            break
    whole = asyncio.create_task(connect(server).post("/v1/completions", json=body))
    while generator.open < 1:
        await asyncio.sleep(0)
    whole.cancel()
    await generator.drain()
    assert generator.open == 0
    assert (await complete(connect(server), asked()))["choices"]
    assert server.service.inflight == 0


async def test_texts_are_counted_and_timed(client: httpx.AsyncClient) -> None:
    def value(page: str, series: str) -> float:
        lines = [line for line in page.splitlines() if line.startswith(f"tidemill_generation_{series} ")]
        return float(lines[0].rpartition(" ")[2]) if lines else -1.0

    model = 'model="talker",version="1"'
    before = (await client.get("/metrics")).text
    assert value(before, f'tokens_total{{kind="generated",{model}}}') == 0
    for _ in range(2):
        await complete(client, asked(ignore_eos=True))
    after = (await client.get("/metrics")).text
    counts = {
        kind: value(after, f'tokens_total{{kind="{kind}",{model}}}') for kind in ("prompt", "cached", "generated")
    }
    assert counts == {"prompt": 8, "cached": 3, "generated": 24}
    assert value(after, f"first_token_seconds_count{{{model}}}") == 2
    assert value(after, f"token_seconds_count{{{model}}}") == 2
    assert value(after, f"step_rows_count{{{model}}}") == 22
    assert value(after, f"running{{{model}}}") == value(after, f"waiting{{{model}}}") == 0
    assert value(after, f"cache_tokens{{{model}}}") == 0


async def test_models_are_listed_for_both_kinds_of_clients(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/v1/models")).json()
    assert listed["models"] == ["talker"]
    assert [(one["id"], one["object"]) for one in listed["data"]] == [("talker", "model")]
    one = (await client.get("/v1/models/talker")).json()
    assert (one["id"], one["object"], one["name"], one["ready"]) == ("talker", "model", "talker", True)


async def test_generate_and_infer(client: httpx.AsyncClient, oracle: Oracle) -> None:
    made = oracle.greedy("once", 9, [END])
    flat = {"text_input": "once", "max_tokens": 9, "temperature": 0}
    answer = (await client.post("/v2/models/talker/generate", json=flat)).json()
    assert answer["text_output"] == oracle.text(made)
    stream = await client.post("/v2/models/talker/generate_stream", json=flat)
    pieces = list(events(stream.text))
    assert "".join(piece["text_output"] for piece in pieces) == oracle.text(made)
    assert pieces[-1]["parameters"]["finish_reason"] in ("stop", "length")
    request = {
        "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [2], "data": ["once", "two"]}],
        "parameters": {"max_tokens": 9, "temperature": 0},
    }
    both = (await client.post("/v2/models/talker/infer", json=request)).json()
    assert both["outputs"][0]["data"] == [oracle.text(oracle.greedy(text, 9, [END])) for text in ("once", "two")]


@pytest.mark.parametrize(
    ("flat", "text"),
    [
        ({"text_input": "x", "max_tokens": "many"}, "max_tokens"),
        ({"text_input": "x", "temperature": -1}, "temperature"),
        ({"text_input": "x", "max_tokens": 0}, "max_tokens"),
        ({"text_input": ""}, "no tokens"),
        ({"text_input": "x", "max_tokens": 9999}, "room for 256"),
        ({"text_input": "x" * 20_000, "max_tokens": 1}, "20000 characters"),
        ({}, "text_input"),
        ({"text_input": ["a", "b"]}, ""),
    ],
)
async def test_generate_refuses(flat: dict[str, Any], text: str, client: httpx.AsyncClient) -> None:
    response = await client.post("/v2/models/talker/generate_stream", json=flat)
    assert response.status_code == 400, response.text
    assert text in response.json()["error"]


@pytest.fixture
async def stub(models: Path, start_server: StartServer) -> AsyncIterator[triton.InferenceServerClient]:
    server = await start_server(models)
    async with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        yield client


def text_input(text: str) -> triton.InferInput:
    given = triton.InferInput("text_input", [1], "BYTES")
    given.set_data_from_numpy(np.array([text.encode()], object))
    return given


async def test_streams_and_calls_of_tritons_client(stub: triton.InferenceServerClient, oracle: Oracle) -> None:
    asked = {"max_tokens": 9, "temperature": 0.0}

    async def requests() -> AsyncIterator[dict[str, Any]]:
        for number, prompt in enumerate(("once", "two")):
            yield {
                "model_name": "talker",
                "inputs": [text_input(prompt)],
                "request_id": str(number),
                "parameters": asked,
            }

    texts, finals = {"0": "", "1": ""}, []
    async for result, error in stub.stream_infer(requests()):
        assert error is None
        answer = result.get_response()
        texts[answer.id] += result.as_numpy("text_output")[0].decode()
        finals += [answer.id] if answer.parameters["triton_final_response"].bool_param else []
    assert finals == ["0", "1"]
    expected = [oracle.text(oracle.greedy(prompt, 9, [END])) for prompt in ("once", "two")]
    assert list(texts.values()) == expected
    whole = await stub.infer("talker", [text_input("two")], parameters=asked)
    assert whole.as_numpy("text_output")[0].decode() == expected[1]
    config = await stub.get_model_config("talker")
    assert config.config.model_transaction_policy.decoupled
    metadata = await stub.get_model_metadata("talker")
    assert [one.name for one in metadata.outputs] == ["text_output"]


async def test_unloading_lets_texts_end(models: Path, start_server: StartServer, connect: Connect) -> None:
    server = await start_server(models, model_control="explicit", load_models=("talker",))
    client = connect(server)
    served = server.service.find("talker")
    assert isinstance(served, ServedGenerator)
    task = asyncio.create_task(client.post("/v1/completions", json=asked(max_tokens=200, ignore_eos=True)))
    while not served.model.generator.open:
        await asyncio.sleep(0)
    unloaded = await connect(server).post("/v2/repository/models/talker/unload")
    assert unloaded.status_code == 200
    assert (await task).json()["usage"]["completion_tokens"] == 200
    refused = await client.post("/v1/completions", json=asked())
    assert refused.status_code == 503
    assert "talker" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ('  tokenizer: "../other.json"', "leads out"),
        ("  tokenizer: missing.json", "no file"),
        ('  ends: ["<nothing>"]', "does not have"),
        ("  slots: 0", "slots"),
    ],
)
async def test_settings_that_are_wrong_are_told(
    settings: str, text: str, tmp_path: Path, start_server: StartServer, connect: Connect
) -> None:
    write_talker(tmp_path / "talker")
    lines = list((tmp_path / "talker" / "model.yaml").read_text().splitlines())
    kept = [line for line in lines if line.split(":")[0] != settings.split(":")[0]]
    (tmp_path / "talker" / "model.yaml").write_text("\n".join([*kept, settings]))
    server = await start_server(tmp_path)
    index = (await connect(server).post("/v2/repository/index", json={})).json()
    assert index[0]["state"] == "UNAVAILABLE"
    assert text in index[0]["reason"]
