from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
import zlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio

from tidemill.serving import Server

HEADER = "Inference-Header-Content-Length"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def client(shared_server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{shared_server.http_port}", timeout=60) as client:
        yield client


def tensor(data: Any, shape: list[int], datatype: str = "FP32", name: str = "x") -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


def request(*inputs: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"inputs": list(inputs), **fields}


GOOD = request(tensor([1, 2], [1, 2]))


@pytest.mark.parametrize(
    ("method", "path", "status", "expected"),
    [
        ("GET", "/v2/health/live", 200, {"live": True}),
        ("GET", "/v2/health/ready", 200, {"ready": True}),
        ("GET", "/v2/models/two/ready", 200, {"name": "two", "ready": True}),
        ("GET", "/v2/models/two/versions/1/ready", 200, {"name": "two", "ready": True}),
        (
            "GET",
            "/v2/models/negate",
            200,
            {
                "name": "negate",
                "versions": ["1"],
                "platform": "onnxruntime_onnx",
                "inputs": [{"name": "x", "datatype": "FP32", "shape": []}],
                "outputs": [{"name": "y", "datatype": "FP32", "shape": []}],
            },
        ),
    ],
)
async def test_answers(client: httpx.AsyncClient, method: str, path: str, status: int, expected: Any) -> None:
    answer = await client.request(method, path)
    assert (answer.status_code, answer.json()) == (status, expected)
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("method", "path", "status", "part"),
    [
        ("GET", "/nowhere", 404, "there is no GET '/nowhere' here"),
        ("GET", "/v2/", 404, "no GET"),
        ("GET", "/v3/models", 404, "no GET"),
        ("GET", "/v2/models/tow", 404, "unknown model 'tow'; did you mean 'two'?"),
        ("GET", "/v2/models/tow/ready", 404, "unknown model"),
        ("GET", "/v2/models/two/versions/2", 404, "model 'two' has no version '2'; it has 1"),
        ("GET", "/v2/models/two/versions/0001", 404, "no version '0001'"),
        ("GET", "/v2/models/two/versions/-1", 404, "no version '-1'"),
        ("GET", "/v2/models/%2e%2e%2fetc", 404, "here"),
        ("GET", "/v2/models/..%5cx", 404, "unknown model"),
        ("GET", "/v2/models/a%00b", 404, "unknown model"),
        ("GET", "/v2/models/" + "n" * 5000, 404, "unknown model"),
        ("POST", "/v2/models/two", 405, "POST is not allowed on '/v2/models/two'; use GET"),
        ("GET", "/v2/models/two/infer", 405, "use POST"),
        ("DELETE", "/v2/repository/index", 405, "use POST"),
        ("POST", "/v2/models/nobody/infer", 404, "unknown model 'nobody'"),
        ("POST", "/v2/models/two/versions/9/infer", 404, "no version '9'"),
    ],
)
async def test_refusals_carry_an_error(
    client: httpx.AsyncClient, method: str, path: str, status: int, part: str
) -> None:
    answer = await client.request(method, path, json=GOOD if method == "POST" else None)
    assert answer.status_code == status
    assert part in answer.json()["error"]
    assert len(answer.content) < 1000


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        (request(tensor([1, 2], [1, 2], name="X")), 400, "unknown input 'X'; the model has 'x'"),
        (request(tensor([1, 2], [1, 2]), tensor([1], [1], name="w")), 400, "unknown input 'w'"),
        (request(), 400, "missing input x: FP32[n, 2]"),
        (request(tensor([1, 2], [1, 2], "INT64")), 400, "input 'x' has datatype INT64, expected FP32"),
        (request(tensor([1, 2], [1, 2], "FP33")), 400, "FP33"),
        (request(tensor([1, 2, 3], [1, 3])), 400, "input 'x' has size 3 on axis 1, expected 2"),
        (request(tensor([1, 2], [2])), 400, "of rank 1, expected [n, 2] of rank 2"),
        (request(tensor([1, 2, 3], [1, 2])), 400, "'x'"),
        (request(tensor(["a", "b"], [1, 2])), 400, "'x'"),
        (request(tensor([1, 2], [-1, 2])), 400, "-1"),
        (request(tensor([1, 2], [1 << 40, 1 << 40])), 400, "'x'"),
        (request(tensor([1, 2], [1, 2]), outputs=[{"name": "w"}]), 400, "unknown output 'w'; the model has 'y', 'z'"),
        (request(tensor([1, 2], [1, 2]), id=7), 400, "'id'"),
        (request(tensor([1, 2], [1, 2]), parameters={"timeout": -1}), 400, "'timeout' is -1"),
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b"[]", 400, "not an object"),
        (b'{"inputs": 3}', 400, "'inputs'"),
        (b"\xff\xfe", 400, "not JSON"),
        (b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[NaN,1]}]}', 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b" " * ((1 << 20) + 1), 413, "over the limit of 1048576 bytes"),
    ],
)
async def test_bad_requests_name_the_fact_and_the_server_goes_on(
    client: httpx.AsyncClient, body: Any, status: int, part: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await client.post("/v2/models/two/infer", content=content)
    assert (answer.status_code, answer.json().keys()) == (status, {"error"})
    assert part in answer.json()["error"]
    healthy = await client.post("/v2/models/two/infer", json=GOOD)
    assert [output["data"] for output in healthy.json()["outputs"]] == [[2, 3], [2, 4]]


async def test_values_that_the_model_refuses(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v2/models/gather/infer", json=request(tensor([4], [1], "INT64")))
    assert answer.status_code == 422
    assert "[-4,3]" in answer.json()["error"]


async def test_id_and_outputs_are_as_asked(client: httpx.AsyncClient) -> None:
    body = request(tensor([1, 2], [1, 2]), id="é", outputs=[{"name": "z"}])
    answer = (await client.post("/v2/models/two/versions/1/infer", json=body)).json()
    output = {"name": "z", "datatype": "FP32", "shape": [1, 2], "data": [2, 4]}
    assert answer == {"id": "é", "model_name": "two", "model_version": "1", "outputs": [output]}
    assert "id" not in (await client.post("/v2/models/two/infer", json=GOOD)).json()


@pytest.mark.parametrize("content_type", [None, "application/octet-stream", "text/plain", "multipart/form-data", "x"])
async def test_the_content_type_is_never_looked_at(client: httpx.AsyncClient, content_type: str | None) -> None:
    headers = {"content-type": content_type} if content_type else {}
    answer = await client.post("/v2/models/two/infer", content=json.dumps(GOOD), headers=headers)
    assert answer.status_code == 200


BLOB = np.array([[1.5, -0.0, np.nan]], np.float32).tobytes()


def binary(size: int = 12, blob: bytes = BLOB, **parameters: Any) -> tuple[bytes, bytes]:
    item = {"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": size}}
    return json.dumps(request(item, parameters={"binary_data_output": True, **parameters})).encode(), blob


async def test_binary_in_and_out_is_exact(client: httpx.AsyncClient) -> None:
    head, blob = binary()
    answer = await client.post("/v2/models/identity/infer", content=head + blob, headers={HEADER: str(len(head))})
    length = int(answer.headers[HEADER])
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.content[length:] == BLOB
    assert json.loads(answer.content[:length])["outputs"][0]["parameters"] == {"binary_data_size": 12}


@pytest.mark.parametrize("header", [None, "0", "-5", "abc", "right-1", "right+1", "too long", str(2**63), "1e2", "٣"])
async def test_only_the_right_header_length_parses(client: httpx.AsyncClient, header: str | None) -> None:
    head, blob = binary()
    values = {"right-1": str(len(head) - 1), "right+1": str(len(head) + 1), "too long": str(len(head + blob) + 1)}
    headers = {} if header is None else {HEADER: values.get(header, header).encode()}
    answer = await client.post("/v2/models/identity/infer", content=head + blob, headers=headers)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]


@pytest.mark.parametrize(
    ("size", "blob"), [(12, BLOB[:-1]), (12, b""), (12, BLOB + b"x"), (11, BLOB), (13, BLOB + b"x"), (-1, BLOB)]
)
async def test_blobs_must_have_the_size_they_claim(client: httpx.AsyncClient, size: int, blob: bytes) -> None:
    head, _ = binary(size)
    answer = await client.post("/v2/models/identity/infer", content=head + blob, headers={HEADER: str(len(head))})
    assert answer.status_code == 400
    assert answer.json()["error"]


async def test_a_raw_request_is_nothing_but_the_tensor(client: httpx.AsyncClient) -> None:
    x = np.arange(6, dtype=np.float32)
    answer = await client.post("/v2/models/identity/infer", content=x.tobytes(), headers={HEADER: "0"})
    length = int(answer.headers[HEADER])
    assert json.loads(answer.content[:length])["outputs"][0]["shape"] == [2, 3]
    assert answer.content[length:] == x.tobytes()


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_compressed_requests(client: httpx.AsyncClient, encoding: str, pack: Any) -> None:
    head, blob = binary()
    # The length is that of the JSON after decompression.
    headers = {HEADER: str(len(head)), "content-encoding": encoding}
    answer = await client.post("/v2/models/identity/infer", content=pack(head + blob), headers=headers)
    assert answer.content.endswith(BLOB)


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("br", b"x", 415),
        ("gzip, gzip", gzip.compress(gzip.compress(b"{}")), 415),
        ("gzip", gzip.compress(json.dumps(GOOD).encode())[:-5], 400),
        ("gzip", gzip.compress(bytes(2 << 20)), 413),
    ],
)
async def test_encodings_that_are_refused(client: httpx.AsyncClient, encoding: str, body: bytes, status: int) -> None:
    answer = await client.post("/v2/models/two/infer", content=body, headers={"content-encoding": encoding})
    assert answer.status_code == status
    assert answer.json()["error"]
    assert (answer.headers.get("accept-encoding") == "gzip, deflate") is (status == 415)


@pytest.mark.parametrize("line", [b"x-more: %d\r\n" % (10**60), b"y"], ids=["many headers", "one without end"])
async def test_a_head_has_an_end(shared_server: Server, line: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", shared_server.http_port)
    writer.write(b"POST /v2/models/two/infer HTTP/1.1\r\nhost: x\r\n" + (b"x-long: " if line == b"y" else b""))
    for _ in range(20):
        writer.write(line * (4096 // len(line)))
        await writer.drain()
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"over the limit of 65536 bytes" in answer


@pytest.mark.parametrize(
    "raw", [b"GARBAGE\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"]
)
async def test_what_is_no_http_is_told_so(shared_server: Server, raw: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", shared_server.http_port)
    writer.write(raw)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]


@pytest.mark.parametrize("accepted", ["gzip", "deflate", "identity"])
@pytest.mark.parametrize("rows", [1, 2000, 20_000])
async def test_large_answers_are_compressed_if_accepted(shared_server: Server, accepted: str, rows: int) -> None:
    x = np.zeros((rows, 3), np.float32)
    item = {"name": "x", "shape": [rows, 3], "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps(request(item, parameters={"binary_data_output": True})).encode()
    status, headers, body = await asyncio.to_thread(
        raw_post,
        shared_server.http_port,
        "/v2/models/identity/infer",
        head + x.tobytes(),
        {HEADER: str(len(head)), "Accept-Encoding": accepted},
    )
    expected = accepted if rows > 1 and accepted != "identity" else None
    assert (status, headers.get("content-encoding")) == (200, expected)
    unpack = {"gzip": gzip.decompress, "deflate": zlib.decompress, None: bytes}[expected]
    assert unpack(body)[int(headers[HEADER.lower()]) :] == x.tobytes()


def raw_post(port: int, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    """Post without a client that would decompress, and read exactly Content-Length bytes."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{fields}Connection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    start, _, content = answer.partition(b"\r\n\r\n")
    first, *lines = start.decode().split("\r\n")
    found = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert len(content) == int(found["content-length"])
    return int(first.split()[1]), found, content


async def test_strings_keep_every_byte(client: httpx.AsyncClient) -> None:
    texts = ["x\0\0", "", "a\0b", "é😀", "\n"]
    answer = await client.post("/v2/models/strings/infer", json=request(tensor(texts, [5], "BYTES")))
    assert answer.json()["outputs"][0]["data"] == texts
    item = {"name": "x", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 6}}
    head = json.dumps(request(item)).encode()
    blob = struct.pack("<I", 2) + b"\xff\xfe"
    refused = await client.post("/v2/models/strings/infer", content=head + blob, headers={HEADER: str(len(head))})
    assert refused.status_code == 400
    assert "UTF-8" in refused.json()["error"]


@pytest.mark.parametrize(
    ("body", "status", "count"),
    [(b"", 200, 10), (b'{"ready": true}', 200, 10), (b"{}", 200, 10), (b"{", 400, 0), (b'{"ready": 1}', 400, 0)],
)
async def test_index(client: httpx.AsyncClient, body: bytes, status: int, count: int) -> None:
    answer = await client.post("/v2/repository/index", content=body)
    assert answer.status_code == status
    if count:
        assert len(answer.json()) == count
        assert answer.json()[0] == {"name": "gather", "version": "1", "state": "READY", "reason": ""}
    else:
        assert answer.json()["error"]


async def test_the_routes_describe_themselves(client: httpx.AsyncClient) -> None:
    document = (await client.get("/v2/openapi.json")).json()
    assert "/v2/models/{model}/ready" in document["paths"]
