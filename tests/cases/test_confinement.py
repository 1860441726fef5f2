"""What users of other servers reported of names and files that lead elsewhere, and of open doors (B34).

`test_wire.py` and `serving/test_control.py` have the names; here nothing outside is even looked at.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import httpx
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tidemill.protocol import messages, rpc
from tidemill.serving import Server, ServerConfig

Start = Callable[..., Awaitable[Server]]
_LIMIT = 20
"""Seconds; whoever opens the canary waits for ever."""


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    running: list[Server] = []

    async def start(repository: Path, **settings: Any) -> Server:
        running.append(Server([repository], ServerConfig(http_port=0, grpc_port=0, **settings)))
        await running[-1].start()
        await asyncio.wait_for(running[-1].load(), _LIMIT)
        return running[-1]

    yield start
    for server in running:
        await server.stop()


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A model beside the repository whose graph is a pipe that nobody writes: opening it does not return."""
    folder = tmp_path / "outside" / "1"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "model.onnx")
    return tmp_path / "outside"


def with_external_data(folder: Path, location: str) -> None:
    """A model whose table lies elsewhere."""
    table = numpy_helper.from_array(np.arange(4, dtype=np.float32), "table")
    table.ClearField("raw_data")
    table.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": "0", "length": "16"}.items():
        table.external_data.add(key=key, value=value)
    infos = [
        helper.make_tensor_value_info("x", TensorProto.INT64, ["n"]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"]),
    ]
    graph = helper.make_graph([helper.make_node("Gather", ["table", "x"], ["y"])], "g", infos[:1], infos[1:], [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


async def refused(server: Server, name: str) -> list[tuple[int, str]]:
    """What is said of a name by everything that takes one, over REST."""
    quoted = quote(name, safe="")
    asked = [("GET", f"/v2/models/{quoted}"), ("GET", f"/v2/models/{quoted}/config")]
    asked += [("POST", f"/v2/models/{quoted}/infer")]
    asked += [("POST", f"/v2/repository/models/{quoted}/{verb}") for verb in ("load", "unload")]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}", timeout=_LIMIT) as client:
        answers = [await client.request(method, path) for method, path in asked]
    return [(answer.status_code, answer.text.replace(name, "NAME")) for answer in answers]


async def test_b34_what_lies_outside_is_told_like_what_does_not_exist(
    write_model: Callable[..., Path], start: Start, canary: Path
) -> None:
    server = await start(write_model("two"))
    there = await refused(server, f"../{canary.name}")
    assert {status for status, _ in there} <= {400, 404}
    assert there == await refused(server, "../nowhere")
    assert [status for status, _ in await refused(server, str(canary))] == [status for status, _ in there]


@pytest.mark.parametrize("version", ["..", "-1", "1e3", "0001", "1/../1", "x" * 5000, ""])
async def test_b34_versions_that_are_no_numbers_are_unknown_to_every_method(
    write_model: Callable[..., Path], start: Start, version: str
) -> None:
    server = await start(write_model("two"))
    infer = messages.ModelInferRequest(model_name="two", model_version=version)
    infer.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    infer.raw_input_contents.append(bytes(8))
    asked = {
        "ModelInfer": infer,
        "ModelMetadata": messages.ModelMetadataRequest(name="two", version=version),
        "ModelConfig": messages.ModelConfigRequest(name="two", version=version),
        "ModelStatistics": messages.ModelStatisticsRequest(name="two", version=version),
    }
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        for method, request in asked.items():
            stub = channel.unary_unary(rpc.method_path(method), lambda message: message.SerializeToString())
            code = await stub(request, timeout=_LIMIT).code()
            # No version at all means the newest.
            assert (code is grpc.StatusCode.OK) == (not version), method
            assert version == "" or code in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)


@pytest.mark.parametrize("location", ["../../../outside/1/model.onnx", "{canary}/1/model.onnx"])
async def test_b34_weights_outside_are_not_opened(
    write_model: Callable[..., Path], start: Start, canary: Path, location: str
) -> None:
    repository = write_model("two")
    with_external_data(repository / "thief" / "1", location.format(canary=canary))
    server = await start(repository)
    index = {entry.name: entry for entry in server.service.index()}
    assert (index["two"].state, index["thief"].state) == ("READY", "UNAVAILABLE")
    assert index["thief"].reason


async def test_b34_a_folder_that_is_a_link_outward_is_not_followed(
    write_model: Callable[..., Path], start: Start, canary: Path
) -> None:
    repository = write_model("two")
    (repository / "link").symlink_to(canary)
    server = await start(repository)
    index = {entry.name: entry for entry in server.service.index()}
    assert (index["two"].state, index["link"].state) == ("READY", "UNAVAILABLE")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}", timeout=_LIMIT) as client:
        assert (await client.post("/v2/repository/models/link/load")).status_code in (400, 404, 422)


async def test_b34_loading_needs_a_key_of_its_own_on_both_faces(
    write_model: Callable[..., Path], start: Start, tmp_path: Path
) -> None:
    (tmp_path / "keys.yaml").write_text("inference: key-of-callers-1\nrepository: key-of-operators-1\n")
    server = await start(write_model("two"), keys_file=tmp_path / "keys.yaml", model_control="explicit")
    keys = {None: False, "wrong": False, "key-of-callers-1": False, "key-of-operators-1": True}
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}", timeout=_LIMIT) as client,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        for key, opens in keys.items():
            headers = {"x-api-key": key} if key else {}
            for verb in ("unload", "load"):
                answer = await client.post(f"/v2/repository/models/two/{verb}", headers=headers)
                assert answer.status_code == (200 if opens else 401), (key, verb)
            for method in ("RepositoryModelUnload", "RepositoryModelLoad"):
                request = getattr(messages, f"{method}Request")(model_name="two")
                stub = channel.unary_unary(rpc.method_path(method), lambda message: message.SerializeToString())
                code = await stub(request, metadata=tuple(headers.items()), timeout=_LIMIT).code()
                assert code is (grpc.StatusCode.OK if opens else grpc.StatusCode.UNAUTHENTICATED), (key, method)
