"""ModelStreamInfer, as tritonclient and as bare messages speak it."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
import pytest
import pytest_asyncio
import tritonclient.grpc as grpc_sync
import tritonclient.grpc.aio as grpc_aio
from tritonclient.utils import InferenceServerException

from tidemill.protocol import messages, rpc
from tidemill.serving import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def channel(open_server: Server) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{open_server.grpc_port}") as channel:
        yield channel


def ask(model: str, value: float, identifier: str = "", **parameters: bool) -> Any:
    message = messages.ModelInferRequest(model_name=model, id=identifier)
    message.inputs.add(name="x", datatype="FP32", shape=[1, 1])
    message.raw_input_contents.append(np.float32(value).tobytes())
    for name, value_ in parameters.items():
        message.parameters[name].bool_param = value_
    return message


def open_stream(channel: Any, **options: Any) -> Any:
    stub = channel.stream_stream(
        rpc.method_path("ModelStreamInfer"),
        lambda message: message.SerializeToString(),
        messages.ModelStreamInferResponse.FromString,
    )
    return stub(**options)


async def test_answers_come_in_order_with_errors_among_them(channel: Any) -> None:
    # The first is the slowest; the unknown model is known at once and still waits for its turn.
    asked = [("slow", 300, "a"), ("nobody", 1, "b"), ("value", 1, "c"), ("slow", 1, "d"), ("value", 2, "")]
    stream = open_stream(channel)
    for one in asked:
        await stream.write(ask(*one))
    await stream.done_writing()
    answers = [answer async for answer in stream]
    assert [answer.infer_response.id for answer in answers] == ["a", "b", "c", "d", ""]
    assert ["unknown model 'nobody'" in answer.error_message for answer in answers] == [
        False,
        True,
        False,
        False,
        False,
    ]
    assert not answers[1].infer_response.outputs
    finals = [answer.infer_response.parameters["triton_final_response"].bool_param for answer in answers]
    assert finals == [True, False, True, True, True]
    assert await stream.code() == grpc.StatusCode.OK


async def test_an_empty_final_response_is_not_sent_where_the_only_response_is_final(channel: Any) -> None:
    stream = open_stream(channel)
    await stream.write(ask("value", 1, triton_enable_empty_final_response=True))
    await stream.done_writing()
    assert len([answer async for answer in stream]) == 1


async def test_a_stream_may_ask_to_end_at_the_first_error(channel: Any) -> None:
    stream = open_stream(channel, metadata=(("triton_grpc_error", "true"),))
    for model in ("value", "nobody", "value"):
        await stream.write(ask(model, 1))
    assert (await stream.read()).infer_response.model_name == "value"
    with pytest.raises(grpc.aio.AioRpcError, match="unknown model"):
        await stream.read()
    assert await stream.code() == grpc.StatusCode.NOT_FOUND


async def test_a_message_that_is_none_is_told_in_its_place(channel: Any) -> None:
    stub = channel.stream_stream(rpc.method_path("ModelStreamInfer"))
    stream = stub()
    await stream.write(b"\xff\xff\xff")
    await stream.write(ask("value", 1, "next").SerializeToString())
    await stream.done_writing()
    answers = [messages.ModelStreamInferResponse.FromString(data) async for data in stream]
    assert "ModelStreamInferRequest" in answers[0].error_message
    assert answers[1].infer_response.id == "next"


async def test_a_stream_that_is_dropped_leaves_nothing_behind(channel: Any, open_server: Server) -> None:
    for _ in range(10):
        stream = open_stream(channel)
        for _ in range(100):
            await stream.write(ask("slow", 50))
        stream.cancel()
    async with asyncio.timeout(20):
        while open_server.service.inflight:
            await asyncio.sleep(0.01)
    stream = open_stream(channel)
    await stream.write(ask("value", 1))
    await stream.done_writing()
    assert (await stream.read()).infer_response.model_name == "value"


async def test_a_thousand_requests_on_one_stream(channel: Any) -> None:
    stream = open_stream(channel)

    async def write_all() -> None:
        for number in range(1000):
            await stream.write(ask("value", 1, str(number)))
        await stream.done_writing()

    writing = asyncio.create_task(write_all())
    assert [answer.infer_response.id async for answer in stream] == [str(number) for number in range(1000)]
    await writing


async def test_the_clients_of_triton(open_server: Server) -> None:
    address = f"127.0.0.1:{open_server.grpc_port}"
    x = grpc_sync.InferInput("x", [1, 1], "FP32").set_data_from_numpy(np.ones((1, 1), np.float32))
    asked = [{"model_name": model, "inputs": [x], "request_id": model} for model in ("value", "nobody", "value")]

    def ask_sync() -> list[str]:
        answers: queue.Queue[Any] = queue.Queue()
        with grpc_sync.InferenceServerClient(address) as client:
            client.start_stream(lambda result, error: answers.put(error or result))
            for one in asked:
                client.async_stream_infer(**one)
            return [told(answers.get(timeout=30)) for _ in asked]

    async def requests() -> AsyncIterator[Any]:
        for one in asked:
            yield one

    async def ask_async() -> list[str]:
        async with grpc_aio.InferenceServerClient(address) as client:
            return [told(error or result) async for result, error in client.stream_infer(requests())]

    expected = ["value", "error", "value"]
    assert await asyncio.to_thread(ask_sync) == expected
    assert await ask_async() == expected


def told(answer: Any) -> str:
    return "error" if isinstance(answer, InferenceServerException) else str(answer.get_response().model_name)
