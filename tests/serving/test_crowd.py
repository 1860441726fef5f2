"""Many connections at once, and tensors as large as the limit allows."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import orjson
import pytest

from tidemill.protocol import messages, rpc
from tidemill.serving import Server

CONNECTIONS = 1000
LARGE = 256 << 20


@pytest.fixture
def many_files() -> Any:
    """A client and a server in one process need two files a connection."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 3 * CONNECTIONS:
        pytest.skip(f"this machine allows {before[1]} open files, {3 * CONNECTIONS} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 3 * CONNECTIONS), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def ask(port: int, number: int, opened: asyncio.Barrier) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await opened.wait()
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [number, 0]}
    body = orjson.dumps({"id": str(number), "inputs": [tensor]})
    answered = 0
    for _ in range(2):
        head = f"POST /v2/models/two/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        start = await reader.readuntil(b"\r\n\r\n")
        length = int(start.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        answer = orjson.loads(await reader.readexactly(length))
        answered += answer["id"] == str(number) and answer["outputs"][0]["data"] == [number + 1, 1]
    writer.close()
    return answered


async def test_a_thousand_connections(write_model: Any, start_server: Any, many_files: None) -> None:
    server: Server = await start_server(write_model("two"))
    opened = asyncio.Barrier(CONNECTIONS)
    async with asyncio.timeout(60):
        answered = await asyncio.gather(*(ask(server.http_port, number, opened) for number in range(CONNECTIONS)))
    assert answered == [2] * CONNECTIONS


async def test_a_thousand_calls_over_grpc(write_model: Any, start_server: Any) -> None:
    server: Server = await start_server(write_model("two"))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = channel.unary_unary(
            rpc.method_path("ModelInfer"),
            lambda message: message.SerializeToString(),
            messages.ModelInferResponse.FromString,
        )

        async def call(number: int) -> bool:
            message = messages.ModelInferRequest(model_name="two", id=str(number))
            message.inputs.add(name="x", datatype="FP32", shape=[1, 2])
            message.raw_input_contents.append(np.float32([number, 0]).tobytes())
            answer = await stub(message)
            y = np.frombuffer(answer.raw_output_contents[0], np.float32).tolist()
            return bool(answer.id == str(number) and y == [number + 1, 1])

        assert all(await asyncio.gather(*(call(number) for number in range(1000))))


@pytest.fixture
def large() -> Any:
    return np.arange(LARGE // 4, dtype=np.float32).reshape(4, -1)


async def test_a_large_tensor_both_ways_over_rest(identity_models: Path, start_server: Any, large: Any) -> None:
    server: Server = await start_server(identity_models, load_models=("identity_float32",))
    tensor = {"name": "x", "datatype": "FP32", "shape": large.shape, "parameters": {"binary_data_size": large.nbytes}}
    head = orjson.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}})
    reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port, limit=16 << 20)
    writer.write(
        f"POST /v2/models/identity_float32/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(head) + large.nbytes}\r\n"
        f"inference-header-content-length: {len(head)}\r\n\r\n".encode()
    )
    writer.write(head)
    writer.write(large.reshape(-1).view(np.uint8).data)
    await writer.drain()
    start = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert start.startswith(b"http/1.1 200")
    length = int(start.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0])
    body = await reader.readexactly(length)
    # Compared as arrays, for pytest would take half a minute to show the difference of such bytes.
    assert np.array_equal(np.frombuffer(body, np.float32, offset=length - large.nbytes), large.reshape(-1))
    writer.close()


async def test_a_large_tensor_both_ways_over_grpc(identity_models: Path, start_server: Any, large: Any) -> None:
    server: Server = await start_server(identity_models, load_models=("identity_float32",))
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}", options=options) as channel:
        message = messages.ModelInferRequest(model_name="identity_float32", raw_input_contents=[large.tobytes()])
        message.inputs.add(name="x", datatype="FP32", shape=large.shape)
        answer = await channel.unary_unary(rpc.method_path("ModelInfer"))(message.SerializeToString())
    (found,) = messages.ModelInferResponse.FromString(answer).raw_output_contents
    assert np.array_equal(np.frombuffer(found, np.float32), large.reshape(-1))


async def test_over_the_limit_both_faces_say_so(identity_models: Path, start_server: Any) -> None:
    server: Server = await start_server(identity_models, load_models=("identity_float32",), max_request_bytes=1 << 20)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
    writer.write(b"POST /v2/models/identity_float32/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 1048577\r\n\r\n")
    writer.write(b" " * ((1 << 20) + 1))
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413")
    writer.close()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        message = messages.ModelInferRequest(model_name="identity_float32", raw_input_contents=[bytes(1 << 20)])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(rpc.method_path("ModelInfer"))(message.SerializeToString())
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
