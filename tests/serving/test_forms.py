"""Inference over REST in every other form: generate, predict, .npy, safetensors, raw bytes."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
import safetensors.numpy

from tidemill.serving import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

NPY, SAFETENSORS = "application/x-npy", "application/vnd.safetensors"


@pytest_asyncio.fixture(loop_scope="module")
async def client(open_server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{open_server.http_port}", timeout=60) as client:
        yield client


def saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/v2/models/two/generate", {"x": [1, 2]}, {"y": [2, 3], "z": [2, 4]}),
        ("/v2/models/two/versions/1/generate", {"x": [1, 2], "id": "7"}, {"id": "7", "y": [2, 3], "z": [2, 4]}),
        ("/v2/models/negate/generate", {"x": 2.5, "parameters": {"note": "passes"}}, {"y": -2.5}),
        ("/v2/models/strings/generate", {"x": "é"}, {"y": "é"}),
    ],
)
async def test_generate(client: httpx.AsyncClient, path: str, body: Any, expected: Any) -> None:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200
    assert answer.json() == {"model_name": path.split("/")[3], "model_version": "1", **expected}


async def test_generate_stream_sends_events(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v2/models/two/generate_stream", json={"x": [1, 2]})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.text.startswith("data: {")
    assert answer.text.endswith("}\n\n")
    assert json.loads(answer.text.removeprefix("data: "))["z"] == [2, 4]


@pytest.mark.parametrize("route", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    ("model", "content", "status", "text"),
    [
        ("two", b"{", 400, "not JSON"),
        ("two", b'{"x": [1]}', 400, "input 'x'"),
        ("two", b"{}", 400, "missing input x"),
        ("two", b'{"x": [1, 2], "timeout": "soon"}', 400, "'timeout'"),
        ("nobody", b"{}", 404, "unknown model"),
        ("gather", b'{"x": 4}', 422, "-4,3"),
    ],
)
async def test_the_first_answer_decides_the_status(
    client: httpx.AsyncClient, route: str, model: str, content: bytes, status: int, text: str
) -> None:
    answer = await client.post(f"/v2/models/{model}/{route}", content=content)
    assert answer.status_code == status
    assert text in answer.json()["error"]


@pytest.mark.parametrize(
    ("model", "body", "expected"),
    [
        ("identity", {"instances": [[1, 2, 3], [4, 5, 6]]}, {"predictions": [[1, 2, 3], [4, 5, 6]]}),
        ("two", {"instances": [{"x": [1, 2]}]}, {"predictions": [{"y": [2, 3], "z": [2, 4]}]}),
        ("two", {"inputs": {"x": [[1, 2]]}}, {"outputs": {"y": [[2, 3]], "z": [[2, 4]]}}),
        ("strings", {"instances": ["a", "é"]}, {"predictions": ["a", "é"]}),
    ],
)
async def test_predict(client: httpx.AsyncClient, model: str, body: Any, expected: Any) -> None:
    answer = await client.post(f"/v1/models/{model}:predict", json=body)
    assert (answer.status_code, answer.json()) == (200, expected)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/models/nobody:predict", 404),
        ("POST", "/v1/models/two:predict", 400),
        ("GET", "/v1/models/two:predict", 404),
        ("GET", "/v1/models/two", 200),
        ("GET", "/v1/models", 200),
        ("POST", "/v1/models/two:explain", 405),
    ],
)
async def test_predict_statuses(client: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    answer = await client.request(method, path)
    assert answer.status_code == status
    assert status == 200 or answer.json()["error"]


async def test_npy_in_and_out(client: httpx.AsyncClient) -> None:
    x = np.asfortranarray(np.arange(6, dtype=">f4").reshape(2, 3))
    answer = await client.post("/v2/models/identity/infer", content=saved(x), headers={"content-type": NPY})
    assert answer.headers["content-type"] == NPY
    np.testing.assert_array_equal(np.load(io.BytesIO(answer.content)), x)


async def test_an_npy_file_holds_one_output(client: httpx.AsyncClient) -> None:
    body, headers = saved(np.float32([[1, 2]])), {"content-type": NPY}
    refused = await client.post("/v2/models/two/infer", content=body, headers=headers)
    assert (refused.status_code, "'y', 'z'; ask for one" in refused.json()["error"]) == (400, True)
    answer = await client.post("/v2/models/two/infer?output=z", content=body, headers=headers)
    assert np.load(io.BytesIO(answer.content)).tolist() == [[2, 4]]
    unknown = await client.post("/v2/models/two/infer?output=w", content=body, headers=headers)
    assert unknown.status_code == 400


async def test_safetensors_in_and_out(client: httpx.AsyncClient) -> None:
    body = safetensors.numpy.save({"x": np.float32([[1, 2]])}, {"id": "7"})
    answer = await client.post("/v2/models/two/infer", content=body, headers={"content-type": SAFETENSORS})
    found = safetensors.numpy.load(answer.content)
    assert {name: array.tolist() for name, array in found.items()} == {"y": [[2, 3]], "z": [[2, 4]]}
    assert b'"id":"7"' in answer.content


@pytest.mark.parametrize(
    ("content_type", "accept", "expected"),
    [
        (None, None, "application/json"),
        (None, "*/*", "application/json"),
        (None, NPY, NPY),
        (None, "application/npy", NPY),
        (None, f"text/html, {SAFETENSORS};q=0.9", SAFETENSORS),
        (NPY, None, NPY),
        (NPY, "application/json", "application/json"),
        (NPY, SAFETENSORS, SAFETENSORS),
        ("application/x-safetensors", None, SAFETENSORS),
        ("application/x-raw", None, "application/octet-stream"),
        ("application/x-raw", "application/json", "application/json"),
        ("image/png", NPY, NPY),
    ],
)
async def test_the_answer_has_the_form_that_is_accepted(
    client: httpx.AsyncClient, content_type: str | None, accept: str | None, expected: str
) -> None:
    x = np.float32([[1, 2, 3]])
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
    bodies = {
        None: json.dumps({"inputs": [tensor]}).encode(),
        NPY: saved(x),
        "application/x-safetensors": safetensors.numpy.save({"x": x}),
    }
    given = {"content-type": content_type, "accept": accept}
    headers = {name: value for name, value in given.items() if value is not None}
    content = bodies.get(content_type, x.tobytes())
    answer = await client.post("/v2/models/identity/infer", content=content, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (200, expected)


async def test_a_file_goes_as_it_is_into_a_model_of_bytes(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v2/models/strings/infer", content=b"GIF", headers={"content-type": "image/gif"})
    assert answer.content.endswith(b"\x03\0\0\0GIF")


@pytest.mark.parametrize("content_type", [NPY, SAFETENSORS, "application/x-raw"])
@pytest.mark.parametrize("content", [b"", b"x", b"\x93NUMPY\x01\x00", bytes(64)])
async def test_damaged_bodies(client: httpx.AsyncClient, content_type: str, content: bytes) -> None:
    answer = await client.post("/v2/models/two/infer", content=content, headers={"content-type": content_type})
    assert answer.status_code in (200, 400)
    assert answer.status_code == 200 or answer.json()["error"]


async def test_the_whole_time_stands_in_a_header(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v2/models/two/generate", json={"x": [1, 2]})
    assert float(answer.headers["server-timing"].rpartition("total;dur=")[2]) > 0
