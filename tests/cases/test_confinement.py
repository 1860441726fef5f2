"""What users of other servers reported of names and files that lead elsewhere, and of open doors (B34).

`serving/test_security.py` has the keys of every group, `authoring/weights/` the indexes and pickles of weights; here
nothing outside is even looked at.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import httpx
import numpy as np
import pytest
from asking import asking
from onnx import TensorProto, helper, numpy_helper

from tidemill.protocol import messages, rpc
from tidemill.serving import Server, ServerConfig

Start = Callable[..., Awaitable[Server]]
_LIMIT = 20
"""Seconds; whoever opens the canary waits for ever."""
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Spares every client to read the machine's certificates."""


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


_NAMES = [
    "..",
    "../x",
    "a/../../x",
    "..\\x",
    "/etc",
    "",
    ".",
    "a\0b",
    "con:1",
    "n" * 5000,
    "\u2024\u2024",
    "\uff0e\uff0e/x",
]
_VERSIONS = ["..", "-1", "1e3", "0001", "1/../1", "\u0661", "x" * 5000, ""]


async def over_rest(server: Server, asked: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The answers to methods and paths."""
    base = f"http://127.0.0.1:{server.http_port}"
    async with httpx.AsyncClient(base_url=base, timeout=_LIMIT, verify=_NO_TLS) as client:
        answers = [await client.request(method, path) for method, path in asked]
    return [(str(answer.status_code), answer.json()["error"]) for answer in answers]


async def over_grpc(server: Server, asked: dict[str, Any]) -> list[tuple[str, str]]:
    """The answers to messages by method."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        calls = [
            channel.unary_unary(rpc.method_path(method), lambda message: message.SerializeToString())(message)
            for method, message in asked.items()
        ]
        return [((await call.code()).name, await call.details() or "") for call in calls]


def quoted(text: str) -> str:
    """A segment of a path that no client shortens."""
    return quote(text, safe="").replace(".", "%2E")


async def told_of_name(server: Server, face: str, name: str) -> list[tuple[str, str]]:
    """What is said of a name by everything that takes one, apart from the name itself."""
    if face == "rest":
        model, repository = f"/v2/models/{quoted(name)}", f"/v2/repository/models/{quoted(name)}"
        asked = [("GET", model), ("GET", f"{model}/config"), ("GET", f"{model}/stats"), ("GET", f"{model}/ready")]
        asked += [("GET", f"{model}/graph"), ("POST", f"{model}/infer"), ("POST", f"/v1/models/{quoted(name)}:predict")]
        answers = await over_rest(server, [*asked, *(("POST", f"{repository}/{verb}") for verb in ("load", "unload"))])
    else:
        kinds = {"ModelMetadata": "name", "ModelConfig": "name", "ModelReady": "name", "ModelInfer": "model_name"}
        kinds |= {f"RepositoryModel{verb}": "model_name" for verb in ("Load", "Unload")}
        named = {method: getattr(messages, f"{method}Request")(**{field: name}) for method, field in kinds.items()}
        answers = await over_grpc(server, named)
    return [(code, told.replace(repr(name)[1:-1], "NAME").replace(name or "\0", "NAME")) for code, told in answers]


async def is_healthy(server: Server) -> bool:
    async with asking("rest", server) as ask:
        return (await ask("two", np.ones((1, 2), np.float32))).outputs["y"].tolist() == [[2, 2]]


@pytest.mark.parametrize("face", ["rest", "grpc"])
async def test_b34_names_that_are_none_are_unknown_to_every_method(
    write_model: Callable[..., Path], start: Start, face: str
) -> None:
    server = await start(write_model("two"))
    for name in _NAMES:
        for code, told in await told_of_name(server, face, name):
            assert code in ("400", "404", "405", "NOT_FOUND", "INVALID_ARGUMENT"), (name[:20], code)
            assert len(told) < 1000
    assert await is_healthy(server)


@pytest.mark.parametrize("face", ["rest", "grpc"])
async def test_b34_what_lies_outside_is_told_like_what_does_not_exist(
    write_model: Callable[..., Path], start: Start, canary: Path, face: str
) -> None:
    server = await start(write_model("two"))
    for place in ("../{}", "two/../../{}", f"{canary.parent}/{{}}"):
        there, nowhere = [await told_of_name(server, face, place.format(end)) for end in (canary.name, "nowhere")]
        assert {code for code, _ in there} <= {"400", "404", "NOT_FOUND", "INVALID_ARGUMENT"}
        assert there == nowhere
    assert await is_healthy(server)


@pytest.mark.parametrize("version", _VERSIONS)
async def test_b34_versions_that_are_no_numbers_are_unknown_to_every_method(
    write_model: Callable[..., Path], start: Start, version: str
) -> None:
    server = await start(write_model("two"))
    infer = messages.ModelInferRequest(model_name="two", model_version=version)
    infer.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    infer.raw_input_contents.append(bytes(8))
    asked = {"ModelInfer": infer}
    for method in ("ModelMetadata", "ModelConfig", "ModelReady", "ModelStatistics"):
        asked[method] = getattr(messages, f"{method}Request")(name="two", version=version)
    # No version at all means the newest.
    expected = {"NOT_FOUND", "INVALID_ARGUMENT"} if version else {"OK"}
    assert {code for code, _ in await over_grpc(server, asked)} <= expected
    model = f"/v2/models/two/versions/{quoted(version)}"
    paths = [("GET", model), ("GET", f"{model}/config"), ("GET", f"{model}/ready"), ("GET", f"{model}/stats")]
    assert {code for code, _ in await over_rest(server, [*paths, ("POST", f"{model}/infer")])} <= {"400", "404"}
    assert await is_healthy(server)


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


@pytest.mark.parametrize("file", ["model.yaml", "config.pbtxt", "1/bundle.json", "1/model.onnx"])
@pytest.mark.parametrize("target", ["there", "nowhere", "pipe"])
async def test_b34_a_file_that_is_a_link_outward_is_not_read(
    write_model: Callable[..., Path], start: Start, tmp_path: Path, file: str, target: str
) -> None:
    repository = write_model("two")
    (tmp_path / "there").write_text("password: of-the-database\n")
    os.mkfifo(tmp_path / "pipe")
    (write_model("two", "thief").joinpath("thief", file)).unlink(missing_ok=True)
    (repository / "thief" / file).symlink_to(tmp_path / target)
    server = await start(repository)
    index = {entry.name: entry for entry in server.service.index()}
    assert (index["two"].state, index["thief"].state) == ("READY", "UNAVAILABLE")
    # The same is said whether there is something or not, and neither what it is nor where.
    name = file.rpartition("/")[2]
    assert index["thief"].reason.endswith(f"{name!r} leads out of the bundle's folder; put the file itself there")
    assert str(tmp_path) not in index["thief"].reason
    ((code, told),) = await over_rest(server, [("POST", "/v2/repository/models/thief/load")])
    assert code == "400"
    assert str(tmp_path) not in told


@pytest.mark.parametrize("file", ["model.pkl", "model.pt", "model.npy", "weights.pickle"])
async def test_b34_pickles_are_no_models(write_model: Callable[..., Path], start: Start, file: str) -> None:
    repository = write_model("two")
    (repository / "pickled" / "1").mkdir(parents=True)
    mark = repository.parent / "run"
    (repository / "pickled" / "1" / file).write_bytes(f"cos\nmkdir\n(V{mark}\ntR.".encode())
    server = await start(repository)
    index = {entry.name: entry for entry in server.service.index()}
    assert (index["two"].state, index["pickled"].state) == ("READY", "UNAVAILABLE")
    assert [code for code, _ in await over_rest(server, [("POST", "/v2/repository/models/pickled/load")])] == ["400"]
    assert not mark.exists()


_PIPELINE = {"pipeline": {"models": ["two"], "inputs": [{"name": "a", "datatype": "FP32", "shape": [-1]}]}}
_PIPELINE["pipeline"]["outputs"] = _PIPELINE["pipeline"]["inputs"]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (_PIPELINE, "pipeline: code is run only as the repository's model.yaml says"),
        ({"provider_options": {"tensorrt": {"trt_engine_cache_path": "/etc"}}}, "tensorrt.trt_engine_cache_path"),
        ({"provider_options": {"openvino": {"cache_dir": "/etc"}}}, "openvino.cache_dir"),
    ],
)
async def test_b34_a_load_request_brings_no_code_and_no_paths(
    write_model: Callable[..., Path], start: Start, tmp_path: Path, config: Any, told: str
) -> None:
    server = await start(write_model("two"), allow_code=True)
    mark = tmp_path / "run"
    code = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\nasync def run(tensors, ask): return {{}}\n"
    files = {"file:pipeline.py": base64.b64encode(code.encode()).decode(), "file:model.yaml": ""}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}", timeout=_LIMIT) as client:
        for given in ({"config": json.dumps(config)}, {"config": json.dumps(config), **files}):
            for name in ("two", "new"):
                answer = await client.post(f"/v2/repository/models/{name}/load", json={"parameters": given})
                assert (answer.status_code, told in answer.text) == (400, True), answer.text
    assert not mark.exists()
    assert await is_healthy(server)


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
