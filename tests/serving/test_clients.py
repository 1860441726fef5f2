"""tritonclient as an independent judge of both faces, alone and in a crowd."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as grpc_sync
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http_sync
import tritonclient.http.aio as http_aio
from tritonclient.utils import InferenceServerException

from tidemill.protocol.types import Array
from tidemill.serving import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

WIRE = {"float32": "FP32", "float16": "FP16", "int64": "INT64", "object": "BYTES"}


def make_input(module: ModuleType, array: Array, **options: Any) -> Any:
    tensor = module.InferInput("x", list(array.shape), WIRE[array.dtype.name])
    tensor.set_data_from_numpy(array, **options)
    return tensor


def port_of(server: Server, module: ModuleType) -> int:
    return server.http_port if module in (http_sync, http_aio) else server.grpc_port


def use_sync(module: ModuleType, address: str) -> list[Any]:
    with module.InferenceServerClient(address) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("two", "1")
        metadata = client.get_model_metadata("two")
        assert (metadata["name"] if isinstance(metadata, dict) else metadata.name) == "two"
        client.get_server_metadata()
        client.get_model_repository_index()
        return [client.infer("two", [make_input(module, x)], request_id="7") for x in SAMPLES]


async def use_async(module: ModuleType, address: str) -> list[Any]:
    async with module.InferenceServerClient(address) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("two", "1")
        metadata = await client.get_model_metadata("two")
        assert (metadata["name"] if isinstance(metadata, dict) else metadata.name) == "two"
        await client.get_server_metadata()
        await client.get_model_repository_index()
        return [await client.infer("two", [make_input(module, x)], request_id="7") for x in SAMPLES]


SAMPLES = [np.arange(2 * rows, dtype=np.float32).reshape(rows, 2) for rows in (1, 0, 3, 1000)]


@pytest.mark.parametrize("module", [http_sync, grpc_sync, http_aio, grpc_aio], ids=lambda module: module.__name__)
async def test_every_client_gets_its_rows_back(shared_server: Server, module: ModuleType) -> None:
    address = f"127.0.0.1:{port_of(shared_server, module)}"
    if module in (http_sync, grpc_sync):
        results = await asyncio.to_thread(use_sync, module, address)
    else:
        results = await use_async(module, address)
    for x, result in zip(SAMPLES, results, strict=True):
        np.testing.assert_array_equal(result.as_numpy("y"), x + 1)
        np.testing.assert_array_equal(result.as_numpy("z"), 2 * x)


@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
async def test_http_bodies_in_every_form(shared_server: Server, packed: str | None, binary: bool) -> None:
    x = np.arange(6000, dtype=np.float32).reshape(-1, 3)
    options = {"request_compression_algorithm": packed, "response_compression_algorithm": packed}
    outputs = [http_aio.InferRequestedOutput("y", binary_data=binary)]
    async with http_aio.InferenceServerClient(f"127.0.0.1:{shared_server.http_port}") as client:
        result = await client.infer(
            "identity", [make_input(http_aio, x, binary_data=binary)], outputs=outputs, **options
        )
    np.testing.assert_array_equal(result.as_numpy("y"), x)


@pytest.mark.parametrize("module", [http_aio, grpc_aio], ids=["http", "grpc"])
async def test_strings_with_zeros_and_of_no_length(shared_server: Server, module: ModuleType) -> None:
    x = np.array([b"x\0\0", b"", b"a\0b", "é😀".encode(), b"\n"], np.object_)
    async with module.InferenceServerClient(f"127.0.0.1:{port_of(shared_server, module)}") as client:
        result = await client.infer("strings", [make_input(module, x)])
        assert result.as_numpy("y").tolist() == x.tolist()
        with pytest.raises(InferenceServerException, match="UTF-8"):
            await client.infer("strings", [make_input(module, np.array([b"\xff\xfe"], np.object_))])


Case = tuple[str, Array, Array | None]


def crowd_case(number: int) -> Case:
    """A request by its number: the model, its input, and the right y; None if it has to be refused."""
    row = np.float32(number)
    cases: list[Case] = [
        ("two", np.full((1 + number % 3, 2), row), np.full((1 + number % 3, 2), row + 1)),
        ("gather", np.array([number % 4]), np.array([10 * (number % 4 + 1)], np.float32)),
        ("gather", np.array([4 + number]), None),
        ("two", np.full((1, 3), row), None),
        ("identity", np.full((2, 3), row), np.full((2, 3), row)),
        ("two", np.array([[1, 2]]), None),
        ("nobody", np.full((1, 2), row), None),
        ("sum", np.full((1, 1 + number % 5), row), np.array([row * (1 + number % 5)])),
    ]
    return cases[number % len(cases)]


@pytest.mark.parametrize("module", [http_aio, grpc_aio], ids=["http", "grpc"])
async def test_64_clients_with_good_and_bad_requests(shared_server: Server, module: ModuleType) -> None:
    address = f"127.0.0.1:{port_of(shared_server, module)}"

    async def client_of(number: int) -> list[tuple[Case, Any]]:
        answers = []
        async with module.InferenceServerClient(address) as client:
            for turn in range(4):
                case = crowd_case(number + turn)
                answers.append((case, await outcome(client.infer(case[0], [make_input(module, case[1])]))))
        return answers

    for answers in await asyncio.gather(*map(client_of, range(64))):
        for (model, _, expected), answer in answers:
            if expected is None:
                assert isinstance(answer, InferenceServerException), (model, answer)
                assert answer.status() in REFUSALS
            else:
                np.testing.assert_array_equal(answer.as_numpy("y"), expected)


REFUSALS = {"400", "404", "422", "StatusCode.INVALID_ARGUMENT", "StatusCode.NOT_FOUND"}


async def outcome(awaitable: Any) -> Any:
    try:
        return await awaitable
    except InferenceServerException as error:
        return error


MALFORMED: list[tuple[str, bytes, dict[str, str], int]] = [
    ("/v2/models/two/infer", b"{", {}, 400),
    ("/v2/models/two/infer", b"", {}, 400),
    ("/v2/models/two/infer", b'{"inputs":[]}', {"Inference-Header-Content-Length": "99"}, 400),
    ("/v2/models/two/infer", b"x", {"Content-Encoding": "br"}, 415),
    ("/v2/models/two/inferr", b"{}", {}, 404),
    ("/v2/models/two/versions/4/infer", b"{}", {}, 404),
    ("/v2/models/two", b"{}", {}, 405),
]


async def test_a_crowd_with_malformed_bodies_leaves_the_others_alone(shared_server: Server, connect: Any) -> None:
    client: httpx.AsyncClient = connect(shared_server)

    async def good(number: int) -> None:
        body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [number, number]}]}
        answer = await client.post("/v2/models/two/infer", json=body)
        assert [output["data"] for output in answer.json()["outputs"]] == [[number + 1] * 2, [number * 2] * 2]

    async def bad(path: str, body: bytes, headers: dict[str, str], status: int) -> None:
        answer = await client.post(path, content=body, headers=headers)
        assert answer.status_code == status
        assert answer.json()["error"]

    jobs: list[Callable[[], Any]] = [lambda n=n: good(n) for n in range(64)]
    jobs += [lambda case=case: bad(*case) for case in MALFORMED * 9]
    await asyncio.gather(*(job() for job in jobs))
