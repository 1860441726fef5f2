"""What users of other servers reported of the wire, by the numbers of those reports, over both lanes and both faces."""

from __future__ import annotations

import asyncio
import gzip
import json
import struct
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import httpx
import ml_dtypes
import numpy as np
import pytest
import pytest_asyncio
from onnx import helper

from tidemill.bundle import Bundle, GraphPart
from tidemill.dtype import DType
from tidemill.protocol import TensorSpec, messages, rpc
from tidemill.serving import Server, ServerConfig

pytestmark = pytest.mark.asyncio(loop_scope="module")
HEADER = "inference-header-content-length"
HALVES = [
    ("float16", np.float16, [1.5, -0.0, 65504.0], 70000),
    ("bfloat16", ml_dtypes.bfloat16, [1.5, 3e38, 1e-40], 1e40),
]
TEXTS = ["x\0\0", "", "a\0b", "é😀", "\n"]


def identity(repository: Path, dtype: DType) -> None:
    x, y = (TensorSpec(name, dtype, ("n", 3)) for name in "xy")
    infos = [helper.make_tensor_value_info(spec.name, dtype.onnx, ["n", 3]) for spec in (x, y)]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "main", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    Bundle(dtype.name, {"main": GraphPart(model, (x,), (y,))}).write(repository / dtype.name / "1")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[True, False], ids=["fast lane", "normal lane"])
async def server(
    all_models: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[Server]:
    halves = tmp_path_factory.mktemp("halves")
    for dtype in (DType.float16, DType.bfloat16):
        identity(halves, dtype)
    config = ServerConfig(http_port=0, grpc_port=0, http_fast_lane=request.param)
    server = Server([all_models, halves], config)
    await server.start()
    await server.load()
    yield server
    await server.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def rest(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}", timeout=60) as client:
        yield client
        # Whatever was sent, the same server answers the next request rightly.
        answer = await client.post("/v2/models/two/infer", json=body("FP32", [1, 2], [1, 2]))
        assert answer.json()["outputs"][0]["data"] == [2.0, 3.0]


@pytest_asyncio.fixture(loop_scope="module")
async def call(server: Server) -> AsyncIterator[Callable[..., Any]]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        method = channel.unary_unary(
            f"/{rpc.SERVICE}/ModelInfer",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=messages.ModelInferResponse.FromString,
        )

        async def call(
            model: str, datatype: str, shape: list[int], *, raw: bytes | None = None, **contents: Any
        ) -> Any:
            tensor = {"name": "x", "datatype": datatype, "shape": shape}
            if contents:
                tensor["contents"] = contents
            given = {} if raw is None else {"raw_input_contents": [raw]}
            return await method(messages.ModelInferRequest(model_name=model, inputs=[tensor], **given), timeout=30)

        yield call


def body(datatype: str, shape: list[int], data: Any, **more: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": datatype, "shape": shape, "data": data}], **more}


def binary(datatype: str, shape: list[int], raw: bytes, **more: Any) -> tuple[bytes, dict[str, str]]:
    tensor = {"name": "x", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [tensor], **more}).encode()
    return head + raw, {HEADER: str(len(head))}


def strict(text: str) -> Any:
    """JSON as RFC 8259 has it: without NaN and Infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def of_outputs(answer: httpx.Response) -> bytes:
    return answer.content[int(answer.headers[HEADER]) :]


async def refused(call: Callable[..., Any], *args: Any, **options: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call(*args, **options)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    return str(error.value.details())


@pytest.mark.parametrize(("name", "kind", "values", "too_large"), HALVES, ids=["FP16", "BF16"])
async def test_b01_halves_are_exact_as_json_and_as_bytes(
    rest: httpx.AsyncClient, call: Callable[..., Any], name: str, kind: Any, values: list[float], too_large: float
) -> None:
    wire, array = DType[name].wire, np.array([values], kind)
    path = f"/v2/models/{name}/infer"
    told = strict((await rest.post(path, json=body(wire, [1, 3], values))).text)["outputs"][0]
    assert told["datatype"] == wire
    assert np.array([told["data"]], kind).tobytes() == array.tobytes()
    over = await rest.post(path, json=body(wire, [1, 3], [too_large, 0, 0]))
    assert over.status_code == 400
    assert "'x'" in over.json()["error"]
    content, headers = binary(wire, [1, 3], array.tobytes())
    told = strict((await rest.post(path, content=content, headers=headers)).text)["outputs"][0]
    assert np.array([told["data"]], kind).tobytes() == array.tobytes()
    content, headers = binary(wire, [1, 3], array.tobytes(), parameters={"binary_data_output": True})
    assert of_outputs(await rest.post(path, content=content, headers=headers)) == array.tobytes()
    assert (await call(name, wire, [1, 3], raw=array.tobytes())).raw_output_contents[0] == array.tobytes()
    assert "x" in await refused(call, name, wire, [1, 3], fp32_contents=values)


async def test_b02_what_is_no_number_is_null_in_json_and_itself_as_bytes(rest: httpx.AsyncClient) -> None:
    array = np.array([[np.nan, np.inf, -np.inf]], np.float32)
    content, headers = binary("FP32", [1, 3], array.tobytes())
    told = strict((await rest.post("/v2/models/identity/infer", content=content, headers=headers)).text)
    assert told["outputs"][0]["data"] == [None, None, None]
    content, headers = binary("FP32", [1, 3], array.tobytes(), parameters={"binary_data_output": True})
    answer = await rest.post("/v2/models/identity/infer", content=content, headers=headers)
    assert of_outputs(answer) == array.tobytes()


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400"])
async def test_b02_a_request_of_what_is_no_json_number_is_refused(rest: httpx.AsyncClient, text: str) -> None:
    content = json.dumps(body("FP32", [1, 3], [0, 0, 0])).replace("[0, 0, 0]", f"[{text}, 0, 0]")
    answer = await rest.post("/v2/models/identity/infer", content=content)
    assert answer.status_code == 400
    assert answer.json()["error"]


def prefixed(elements: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


async def test_b04_elements_are_the_same_bytes_on_every_way(rest: httpx.AsyncClient, call: Callable[..., Any]) -> None:
    elements = [text.encode() for text in TEXTS]
    path = "/v2/models/strings/infer"
    told = strict((await rest.post(path, json=body("BYTES", [5], TEXTS))).text)
    assert told["outputs"][0]["data"] == TEXTS
    content, headers = binary("BYTES", [5], prefixed(elements), parameters={"binary_data_output": True})
    assert of_outputs(await rest.post(path, content=content, headers=headers)) == prefixed(elements)
    typed = await call("strings", "BYTES", [5], bytes_contents=elements)
    raw = await call("strings", "BYTES", [5], raw=prefixed(elements))
    assert typed.raw_output_contents[0] == raw.raw_output_contents[0] == prefixed(elements)


@pytest.mark.parametrize(
    ("raw", "shape"),
    [
        (prefixed([b"\xff\xfe"]), [1]),
        (struct.pack("<I", 9) + b"ab", [1]),
        (prefixed([b"a"] * 3), [4]),
        (prefixed([b"a"] * 3), [2]),
        (b"\0\0", [1]),
    ],
)
async def test_b04_bytes_that_are_no_elements_are_refused(
    rest: httpx.AsyncClient, call: Callable[..., Any], raw: bytes, shape: list[int]
) -> None:
    content, headers = binary("BYTES", shape, raw)
    answer = await rest.post("/v2/models/strings/infer", content=content, headers=headers)
    assert answer.status_code == 400
    assert "\\xff" not in answer.json()["error"]
    await refused(call, "strings", "BYTES", shape, raw=raw)


async def test_b04_text_that_is_none_is_refused(rest: httpx.AsyncClient, call: Callable[..., Any]) -> None:
    content = json.dumps(body("BYTES", [1], ["?"])).replace('"?"', '"\\ud800"')
    assert (await rest.post("/v2/models/strings/infer", content=content)).status_code == 400
    await refused(call, "strings", "BYTES", [1], bytes_contents=[b"\xff\xfe"])


async def test_b05_nothing_and_one_number_keep_their_shapes(rest: httpx.AsyncClient, call: Callable[..., Any]) -> None:
    path = "/v2/models/identity/infer"
    empty, headers = binary("FP32", [0, 3], b"")
    for answer in (
        await rest.post(path, json=body("FP32", [0, 3], [])),
        await rest.post(path, content=empty, headers=headers),
    ):
        assert (answer.json()["outputs"][0]["shape"], answer.json()["outputs"][0]["data"]) == ([0, 3], [])
    for answer in (await call("identity", "FP32", [0, 3], raw=b""), await call("identity", "FP32", [0, 3])):
        assert list(answer.outputs[0].shape) == [0, 3]
        assert list(answer.raw_output_contents) == [b""]
    scalar = (await rest.post("/v2/models/negate/infer", json=body("FP32", [], [2.5]))).json()["outputs"][0]
    assert (scalar["shape"], scalar["data"]) == ([], [-2.5])
    assert (await rest.post("/v2/models/negate/infer", json=body("FP32", [1], [2.5]))).status_code == 400
    assert (await rest.get("/v2/models/negate")).json()["inputs"][0]["shape"] == []
    answer = await call("negate", "FP32", [], raw=np.float32(2.5).tobytes())
    assert (list(answer.outputs[0].shape), answer.raw_output_contents[0]) == ([], np.float32(-2.5).tobytes())
    await refused(call, "negate", "FP32", [1], raw=np.float32(2.5).tobytes())


async def test_b05_no_rows_and_two_rows_at_once_each_get_their_own(rest: httpx.AsyncClient) -> None:
    none, two = await asyncio.gather(
        rest.post("/v2/models/identity/infer", json=body("FP32", [0, 3], [])),
        rest.post("/v2/models/identity/infer", json=body("FP32", [2, 3], [1, 2, 3, 4, 5, 6])),
    )
    assert none.json()["outputs"][0]["data"] == []
    assert two.json()["outputs"][0]["data"] == [1, 2, 3, 4, 5, 6]


RAW = np.array([1, 2, 3], np.float32).tobytes()
CONTENT, RIGHT = binary("FP32", [1, 3], RAW)
LENGTH = int(RIGHT[HEADER])


@pytest.mark.parametrize(
    "length", [None, "0", "-5", "abc", str(LENGTH - 1), str(LENGTH + 1), str(len(CONTENT) + 1), str(2**63), ""]
)
async def test_b07_only_the_right_length_of_the_json_part_is_taken(rest: httpx.AsyncClient, length: str | None) -> None:
    answer = await rest.post(
        "/v2/models/identity/infer", content=CONTENT, headers={} if length is None else {HEADER: length}
    )
    assert answer.status_code == 400
    assert answer.json()["error"]


@pytest.mark.parametrize("off", [-1, 1])
async def test_b07_sizes_that_do_not_add_up_are_refused(rest: httpx.AsyncClient, off: int) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 3], "parameters": {"binary_data_size": 12 + off}}
    head = json.dumps({"inputs": [tensor]}).encode()
    answer = await rest.post("/v2/models/identity/infer", content=head + RAW, headers={HEADER: str(len(head))})
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("coding", "pack", "status"),
    [
        ("gzip", gzip.compress, 200),
        ("deflate", zlib.compress, 200),
        ("gzip, gzip", lambda content: gzip.compress(gzip.compress(content)), 415),
        ("br", lambda content: content, 415),
        ("gzip", lambda content: gzip.compress(content)[:-9], 400),
        ("gzip", lambda content: content, 400),
    ],
)
async def test_b07_the_length_counts_what_was_unpacked(
    rest: httpx.AsyncClient, coding: str, pack: Callable[[bytes], bytes], status: int
) -> None:
    headers = {**RIGHT, "content-encoding": coding}
    answer = await rest.post("/v2/models/identity/infer", content=pack(CONTENT), headers=headers)
    assert answer.status_code == status
    if status == 200:
        assert answer.json()["outputs"][0]["data"] == [1, 2, 3]


@pytest.mark.parametrize(("accepted", "coding"), [("gzip", "gzip"), ("identity", None)])
async def test_b07_a_packed_answer_says_so(rest: httpx.AsyncClient, accepted: str, coding: str | None) -> None:
    large = np.zeros((5000, 3), np.float32)
    content, headers = binary("FP32", [5000, 3], large.tobytes(), parameters={"binary_data_output": True})
    answer = await rest.post(
        "/v2/models/identity/infer", content=content, headers={**headers, "accept-encoding": accepted}
    )
    assert answer.headers.get("content-encoding") == coding
    assert int(answer.headers["content-length"]) < large.nbytes or coding is None
    assert of_outputs(answer) == large.tobytes()


async def sent_as_it_is(server: Server, method: str, path: str) -> tuple[int, str]:
    """The answer to a path that a client of good manners would have tidied up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
    writer.write(f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return int(text.split()[1]), text


ODD_NAMES = [
    "..",
    "../x",
    "a/../../x",
    "%2e%2e%2fx",
    "..%5cx",
    "/etc",
    ".",
    "a\0b",
    "con:1",
    "x" * 5000,
    "\u2024\u2024",
]


@pytest.mark.parametrize("name", ODD_NAMES, ids=lambda name: repr(name)[:20])
async def test_b34_names_that_lead_elsewhere_are_unknown_models(
    rest: httpx.AsyncClient, server: Server, name: str
) -> None:
    quoted = quote(name, safe="%")
    for method, path in (
        ("POST", f"/v2/models/{quoted}/infer"),
        ("GET", f"/v2/models/{quoted}"),
        ("GET", f"/v2/models/{quoted}/config"),
        ("POST", f"/v2/repository/models/{quoted}/load"),
        ("POST", f"/v2/repository/models/{quoted}/unload"),
    ):
        status, text = await sent_as_it_is(server, method, path)
        assert status in (400, 404, 405), (path, text)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        for method, request in (
            ("RepositoryModelLoad", messages.RepositoryModelLoadRequest(model_name=name)),
            ("ModelMetadata", messages.ModelMetadataRequest(name=name)),
        ):
            stub = channel.unary_unary(f"/{rpc.SERVICE}/{method}", request_serializer=lambda m: m.SerializeToString())
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await stub(request, timeout=30)
            assert error.value.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)


@pytest.mark.parametrize("version", ["..", "-1", "1e3", "0001", "1/../1"])
async def test_b34_versions_that_are_no_numbers_are_unknown(
    rest: httpx.AsyncClient, server: Server, version: str
) -> None:
    status, _ = await sent_as_it_is(server, "GET", f"/v2/models/two/versions/{quote(version, safe='')}")
    assert status in (400, 404)
