from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import pytest_asyncio
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tidemill.protocol import messages, rpc
from tidemill.serving import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def channel(shared_server: Server) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{shared_server.grpc_port}") as channel:
        yield channel


def call(channel: Any, name: str, request: Any, **options: Any) -> Any:
    method = next(method for method in rpc.METHODS if method.name == name)
    stub = channel.unary_unary(rpc.method_path(name), lambda m: m.SerializeToString(), method.response.FromString)
    return stub(request, **options)


def infer_request(model: str = "two", **fields: Any) -> Any:
    message = messages.ModelInferRequest(model_name=model, **fields)
    if not message.inputs:
        message.inputs.add(name="x", datatype="FP32", shape=[1, 2])
        message.raw_input_contents.append(np.array([1, 2], np.float32).tobytes())
    return message


async def code_and_text(awaitable: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    return caught.value.code().name, str(caught.value.details())


async def test_server_and_model_say_who_they_are(channel: Any) -> None:
    assert (await call(channel, "ServerLive", messages.ServerLiveRequest())).live
    assert (await call(channel, "ServerReady", messages.ServerReadyRequest())).ready
    assert (await call(channel, "ModelReady", messages.ModelReadyRequest(name="two", version="1"))).ready
    assert (await call(channel, "ServerMetadata", messages.ServerMetadataRequest())).name == "tidemill"
    metadata = await call(channel, "ModelMetadata", messages.ModelMetadataRequest(name="two"))
    assert list(metadata.versions) == ["1"]
    assert [(item.name, item.datatype, list(item.shape)) for item in metadata.outputs] == [
        ("y", "FP32", [-1, 2]),
        ("z", "FP32", [-1, 2]),
    ]
    index = await call(channel, "RepositoryIndex", messages.RepositoryIndexRequest(ready=True))
    assert {item.state for item in index.models} == {"READY"}


async def test_inference_answers_raw_in_the_order_asked(channel: Any) -> None:
    request = infer_request(id="é")
    request.outputs.add(name="z")
    request.outputs.add(name="y")
    answer = await call(channel, "ModelInfer", request)
    assert (answer.id, answer.model_name, answer.model_version) == ("é", "two", "1")
    assert [output.name for output in answer.outputs] == ["z", "y"]
    values = [np.frombuffer(raw, np.float32).tolist() for raw in answer.raw_output_contents]
    assert values == [[2, 4], [2, 3]]


@pytest.mark.parametrize(
    ("change", "code", "part"),
    [
        ({"model": "tow"}, "NOT_FOUND", "unknown model 'tow'; did you mean 'two'?"),
        ({"model": "../x"}, "NOT_FOUND", "unknown model"),
        ({"model_version": "7"}, "NOT_FOUND", "no version '7'"),
        ({"model_version": "0001"}, "NOT_FOUND", "no version '0001'"),
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2]}]}, "INVALID_ARGUMENT", "'x'"),
        ({"outputs": [{"name": "w"}]}, "INVALID_ARGUMENT", "unknown output 'w'"),
        ({"model": "gather"}, "INVALID_ARGUMENT", "datatype FP32, expected INT64"),
    ],
)
async def test_errors_name_the_fact(channel: Any, change: dict[str, Any], code: str, part: str) -> None:
    found, text = await code_and_text(call(channel, "ModelInfer", infer_request(**change)))
    assert found == code
    assert part in text
    assert (await call(channel, "ModelInfer", infer_request())).model_name == "two"


async def test_values_that_the_model_refuses(channel: Any) -> None:
    request = messages.ModelInferRequest(model_name="gather", raw_input_contents=[np.array([4]).tobytes()])
    request.inputs.add(name="x", datatype="INT64", shape=[1])
    found, text = await code_and_text(call(channel, "ModelInfer", request))
    assert (found, "[-4,3]" in text) == ("INVALID_ARGUMENT", True)


async def test_a_message_that_is_none_is_invalid(channel: Any) -> None:
    stub = channel.unary_unary(rpc.method_path("ModelInfer"))
    found, text = await code_and_text(stub(b"\xff\xff\xff"))
    assert found == "INVALID_ARGUMENT"
    assert "ModelInferRequest" in text


async def test_a_message_over_the_limit_is_refused(channel: Any) -> None:
    request = infer_request(raw_input_contents=[bytes(2 << 20)])
    found, _ = await code_and_text(call(channel, "ModelInfer", request))
    assert found == "RESOURCE_EXHAUSTED"


async def test_cuda_shared_memory_is_not_offered(channel: Any) -> None:
    request = messages.CudaSharedMemoryRegisterRequest(name="r", byte_size=4)
    found, text = await code_and_text(call(channel, "CudaSharedMemoryRegister", request))
    assert (found, "offers no CUDA shared memory" in text) == ("UNIMPLEMENTED", True)
    # Clients clean up before they begin, whatever is offered.
    await call(channel, "CudaSharedMemoryUnregister", messages.CudaSharedMemoryUnregisterRequest())
    assert not (await call(channel, "CudaSharedMemoryStatus", messages.CudaSharedMemoryStatusRequest())).regions


async def test_every_rpc_answers(channel: Any) -> None:
    for method in rpc.METHODS:
        if not method.streaming:
            try:
                await call(channel, method.name, method.request())
            except grpc.aio.AioRpcError as error:
                # "Method not found!" is what gRPC itself says of an RPC that is missing.
                assert (error.code().name, error.details()) != ("UNIMPLEMENTED", "Method not found!")  # noqa: PT017


async def test_a_deadline_ends_the_wait(channel: Any) -> None:
    request = messages.ModelInferRequest(model_name="slow", raw_input_contents=[np.float32(3_000).tobytes()])
    request.inputs.add(name="x", datatype="FP32", shape=[1, 1])
    found, _ = await code_and_text(call(channel, "ModelInfer", request, timeout=0.05))
    assert found == "DEADLINE_EXCEEDED"


async def test_reflection_knows_every_service(shared_server: Server) -> None:
    services, fields = await asyncio.to_thread(reflected, f"127.0.0.1:{shared_server.grpc_port}")
    assert {rpc.SERVICE, "grpc.health.v1.Health"} <= services
    assert "raw_input_contents" in fields


def reflected(address: str) -> tuple[set[str], list[str]]:
    with grpc.insecure_channel(address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(database)
        assert pool.FindServiceByName("grpc.health.v1.Health")
        fields = pool.FindMessageTypeByName("inference.ModelInferRequest").fields
        return set(database.get_services()), [field.name for field in fields]


@pytest.mark.asyncio(loop_scope="function")
async def test_health_follows_readiness(all_models: Path, start_server: Any) -> None:
    server = await start_server(all_models, load=False)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=rpc.SERVICE)
        watch = health.Watch(request)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert not (await call(channel, "ServerReady", messages.ServerReadyRequest())).ready
        assert not (await call(channel, "ModelReady", messages.ModelReadyRequest(name="two"))).ready
        await server.load()
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        assert (await health.Check(request)).status == health_pb2.HealthCheckResponse.SERVING
        server.service.drain()
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert not (await call(channel, "ServerReady", messages.ServerReadyRequest())).ready
        watch.cancel()
