"""Twenty thousand damaged requests: none may be answered by a 5xx, hang, or leave memory behind.

The application and the RPCs are called as the sockets would call them; the bytes come from a fixed seed.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import safetensors.numpy

from tidemill.protocol import messages, rpc
from tidemill.serving import Server

CASES = 10_000
# Loading and the first runs are over by then.
_WARM = CASES // 4
_GROWTH_KIB = 64 << 10
_INTERESTING = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
_TOKENS = [b"-1", b"1e400", b"NaN", b"null", b'"', b"[[", b"{}", b"9" * 40, b"true", b'"\\ud800"', b"1.5", b"\xff\xfe"]

Case = tuple[str, dict[str, str], bytes]


def mutate(random_: random.Random, seed: bytes) -> bytes:
    data = bytearray(seed)
    for _ in range(random_.randint(1, 4)):
        at = random_.randrange(len(data) + 1)
        match random_.randrange(7):
            case 0 if data:
                data[at % len(data)] ^= 1 << random_.randrange(8)
            case 1:
                del data[at : at + random_.randrange(16)]
            case 2:
                data[at:at] = random_.randbytes(random_.randrange(16))
            case 3:
                data[at : at + 4] = random_.choice(_INTERESTING).to_bytes(8, "little")[: random_.choice((1, 2, 4, 8))]
            case 4:
                data[at:at] = data[at : at + random_.randrange(64)]
            case 5:
                data[at : at + random_.randrange(4)] = random_.choice(_TOKENS)
            case _:
                del data[random_.randrange(len(data) + 1) :]
    return bytes(data)


def tensor(datatype: str, shape: list[int], **fields: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": datatype, "shape": shape, **fields}


def rest_seeds() -> list[Case]:
    x = np.float32([[1, 2]])
    json_body = json.dumps({"id": "7", "inputs": [tensor("FP32", [1, 2], data=[1, 2])], "outputs": [{"name": "y"}]})
    binary = tensor("FP32", [1, 2], parameters={"binary_data_size": 8})
    head = json.dumps({"inputs": [binary], "parameters": {"binary_data_output": True}}).encode()
    text = tensor("BYTES", [2], parameters={"binary_data_size": 11})
    text_head = json.dumps({"inputs": [text]}).encode()
    file = io.BytesIO()
    np.save(file, x)
    length = "inference-header-content-length"
    return [
        ("/v2/models/two/infer", {}, json_body.encode()),
        ("/v2/models/two/infer", {length: str(len(head))}, head + x.tobytes()),
        ("/v2/models/two/infer", {length: "0"}, x.tobytes()),
        ("/v2/models/two/infer", {"content-encoding": "gzip"}, gzip.compress(json_body.encode(), mtime=0)),
        ("/v2/models/two/infer", {"content-type": "application/x-npy", "accept": "application/json"}, file.getvalue()),
        ("/v2/models/two/infer", {"content-type": "application/vnd.safetensors"}, safetensors.numpy.save({"x": x})),
        ("/v2/models/strings/infer", {length: str(len(text_head))}, text_head + b"\3\0\0\0abc\0\0\0\0"),
        ("/v2/models/two/generate", {}, b'{"x": [1, 2], "id": "7", "parameters": {"a": 1}}'),
        ("/v1/models/two:predict", {}, b'{"instances": [{"x": [1, 2]}, {"x": [3, 4]}]}'),
        ("/v2/repository/models/two/load", {}, b'{"parameters": {"config": "{}", "file:1/model.onnx": "AAAA"}}'),
    ]


def grpc_seeds() -> list[tuple[str, bytes]]:
    raw = messages.ModelInferRequest(model_name="two", id="7", raw_input_contents=[np.float32([1, 2]).tobytes()])
    raw.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    raw.outputs.add(name="y").parameters["classification"].int64_param = 1
    typed = messages.ModelInferRequest(model_name="two")
    typed.inputs.add(name="x", datatype="FP32", shape=[1, 2]).contents.fp32_contents.extend([1, 2])
    typed.parameters["timeout"].int64_param = 5_000_000
    text = messages.ModelInferRequest(model_name="strings", raw_input_contents=[b"\3\0\0\0abc\0\0\0\0"])
    text.inputs.add(name="x", datatype="BYTES", shape=[2])
    trace = messages.TraceSettingRequest(settings={"trace_rate": {"value": ["2"]}})
    seeds = [("ModelInfer", message) for message in (raw, typed, text)]
    others = [("TraceSetting", trace), ("ModelStatistics", messages.ModelStatisticsRequest(name="two"))]
    return [(method, message.SerializeToString()) for method, message in (*seeds, *others)]


async def post(app: Callable[..., Any], case: Case) -> int:
    path, headers, body = case
    status = 0

    async def receive() -> dict[str, Any]:
        nonlocal body
        if body is None:
            await asyncio.Event().wait()
        message, body = {"type": "http.request", "body": body}, None  # type: ignore[assignment]
        return message

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": fields}
    await app({**scope, "raw_path": path.encode(), "http_version": "1.1", "root_path": ""}, receive, send)
    return status


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.fixture
async def server(all_models: Path, start_server: Any) -> Server:
    started: Server = await start_server(all_models, max_request_bytes=1 << 20, load_models=("two", "strings"))
    return started


def rest_cases() -> Iterator[Case]:
    random_ = random.Random(7)
    seeds = rest_seeds()
    for number in range(CASES):
        path, headers, body = seeds[number % len(seeds)]
        if random_.random() < 0.1:
            headers = {**headers, random_.choice(list(headers) or ["accept"]): random_.choice(["-1", "7", "x", "gzip"])}
        yield path, headers, mutate(random_, body)


async def test_rest_bodies(server: Server) -> None:
    app = server._http.config.app
    peak = 0
    for number, case in enumerate(rest_cases()):
        async with asyncio.timeout(10):
            status = await post(app, case)
        assert 200 <= status < 500, (number, case, status)
        if number == _WARM:
            peak = peak_kib()
    assert peak_kib() - peak < _GROWTH_KIB
    assert await post(app, rest_seeds()[0]) == 200


async def test_grpc_messages(server: Server) -> None:
    random_ = random.Random(7)
    seeds = grpc_seeds()
    allowed = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "DEADLINE_EXCEEDED"}
    peak = 0
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stubs = {method: channel.unary_unary(rpc.method_path(method)) for method, _ in seeds}

        async def ask(method: str, data: bytes) -> None:
            call = stubs[method](data, timeout=10)
            assert (await call.code()).name in allowed, (method, data, await call.details())

        for number in range(0, CASES, 50):
            batch = [seeds[(number + offset) % len(seeds)] for offset in range(50)]
            await asyncio.gather(*(ask(method, mutate(random_, data)) for method, data in batch))
            if number == _WARM:
                peak = peak_kib()
        assert peak_kib() - peak < _GROWTH_KIB
        await ask(*seeds[0])
