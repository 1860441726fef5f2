"""The four clients of tritonclient: inference in every type and form of the protocol."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import orjson
import pytest
import pytest_asyncio
from triton import CLIENTS, Triton, open_triton
from tritonclient.utils import InferenceServerException

from tidemill.dtype import DType
from tidemill.serving import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

X = np.array([[1, 2]], np.float32)
HTTP = [kind for kind in CLIENTS if kind.startswith("http")]
GRPC = [kind for kind in CLIENTS if kind.startswith("grpc")]


@pytest_asyncio.fixture(loop_scope="module")
async def client(request: pytest.FixtureRequest, open_server: Server) -> AsyncIterator[Triton]:
    async with open_triton(request.param, open_server) as client:
        yield client


every_client = pytest.mark.parametrize("client", CLIENTS, indirect=True)
http_clients = pytest.mark.parametrize("client", HTTP, indirect=True)
grpc_clients = pytest.mark.parametrize("client", GRPC, indirect=True)


VALUES: dict[DType, Any] = {
    DType.bool: [[True, False, True]],
    DType.string: [[b"x\0\0", b"", "a\0b é😀".encode()]],
    DType.float16: [[65504, -0.0, 6e-8]],
    DType.bfloat16: [[1.5, 3.0e38, 1e-40]],
    DType.float32: [[1.5, 3.4e38, 1e-45]],
    DType.float64: [[1.5, 1.7e308, 5e-324]],
}
TRITON_TYPES = [dtype for dtype in DType if not dtype.wire.startswith("FP8")]


def sample(dtype: DType) -> Any:
    if dtype.is_integral():
        limits = np.iinfo(dtype.to_numpy())  # type: ignore[type-var]
        return np.array([[limits.min, 0, limits.max]], dtype.to_numpy())
    return np.array(VALUES[dtype], dtype.to_numpy())


@every_client
@pytest.mark.parametrize("dtype", TRITON_TYPES)
async def test_every_type_comes_back_exactly(client: Triton, dtype: DType) -> None:
    for array in (sample(dtype), sample(dtype)[:, :0], sample(dtype)[:0]):
        answer = await client.infer(f"identity_{dtype.name}", client.input("x", array, dtype.wire))
        found = answer.as_numpy("y")
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert found.tolist() == array.tolist()


# The client itself refuses to write FP16 and BF16 as JSON; the raw test below does it without it.
@http_clients
@pytest.mark.parametrize("dtype", [dtype for dtype in TRITON_TYPES if dtype not in (DType.float16, DType.bfloat16)])
@pytest.mark.parametrize("binary", [(False, False), (True, False), (False, True)])
async def test_every_type_as_json(client: Triton, dtype: DType, binary: tuple[bool, bool]) -> None:
    array = sample(dtype)
    given = client.input("x", array, dtype.wire, binary=binary[0])
    wanted = client.output("y", binary=binary[1])
    found = (await client.infer(f"identity_{dtype.name}", given, outputs=[wanted])).as_numpy("y")
    # As JSON the client makes an array of str, which binary data are not.
    texts = [item.decode() if isinstance(item, bytes) else item for item in found.reshape(-1).tolist()]
    expected = [item.decode() if isinstance(item, bytes) else item for item in array.reshape(-1).tolist()]
    assert (found.shape, texts) == (array.shape, expected)


@http_clients
@pytest.mark.parametrize("sent", [None, "gzip", "deflate"])
@pytest.mark.parametrize("wanted", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
async def test_compression(client: Triton, sent: str | None, wanted: str | None, binary: bool) -> None:
    x = np.arange(6000, dtype=np.float32).reshape(2000, 3)
    options = {"request_compression_algorithm": sent, "response_compression_algorithm": wanted}
    outputs = [client.output("y", binary=binary)]
    answer = await client.infer("identity", client.input("x", x, "FP32", binary=binary), outputs=outputs, **options)
    np.testing.assert_array_equal(answer.as_numpy("y"), x)


@grpc_clients
@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
async def test_compression_over_grpc(client: Triton, algorithm: str) -> None:
    x = np.arange(6000, dtype=np.float32).reshape(2000, 3)
    answer = await client.infer("identity", client.input("x", x, "FP32"), compression_algorithm=algorithm)
    np.testing.assert_array_equal(answer.as_numpy("y"), x)


@every_client
async def test_scalars(client: Triton) -> None:
    found = (await client.infer("negate", client.input("x", np.array(2.5, np.float32), "FP32"))).as_numpy("y")
    assert (found.shape, found.tolist()) == ((), -2.5)
    with pytest.raises(InferenceServerException, match="of rank 1, expected \\[\\] of rank 0"):
        await client.infer("negate", client.input("x", np.array([2.5], np.float32), "FP32"))


@every_client
async def test_outputs_ids_and_parameters(client: Triton) -> None:
    given = client.input("x", X, "FP32")
    options: dict[str, Any] = {
        "request_id": "é-7",
        "outputs": [client.output("z")],
        "parameters": {"text": "t", "count": 3, "flag": True, "part": 1.5, "tidemill_timing": True},
        "sequence_id": 5,
        "sequence_start": True,
        "sequence_end": True,
        "priority": 1,
        "timeout": 5_000_000,
    }
    answer = await client.infer("two", given, **options)
    assert answer.as_numpy("z").tolist() == [[2, 4]]
    assert answer.as_numpy("y") is None
    response = answer.get_response() if client.is_http else answer.get_response(as_json=True)
    assert (response["id"], response["model_name"], response["model_version"]) == ("é-7", "two", "1")
    for sequence_id in ("text", 2**63 - 1):
        await client.infer("two", given, sequence_id=sequence_id)


@every_client
@pytest.mark.parametrize("name", ["headers", "triton_anything"])
async def test_reserved_parameters_are_refused(client: Triton, name: str) -> None:
    with pytest.raises(InferenceServerException, match="reserved"):
        await client.infer("two", client.input("x", X, "FP32"), parameters={name: "x"})


@every_client
async def test_classification(client: Triton) -> None:
    rows = np.array([[1.5, 3.25, 2], [9, 7, 8]], np.float32)
    outputs = [client.output("y", class_count=2)]
    found = (await client.infer("identity", client.input("x", rows, "FP32"), outputs=outputs)).as_numpy("y")
    assert found.tolist() == [[b"3.250000:1", b"2.000000:2"], [b"9.000000:0", b"8.000000:2"]]
    alone = await client.infer("negate", client.input("x", np.array(2, np.float32), "FP32"), outputs=outputs)
    assert alone.as_numpy("y").tolist() == [b"-2.000000:0"]
    with pytest.raises(InferenceServerException, match="output 'y' is BYTES"):
        await client.infer("strings", client.input("x", np.array([b"a"], np.object_), "BYTES"), outputs=outputs)


@every_client
@pytest.mark.parametrize(
    ("model", "array", "datatype", "text"),
    [
        ("nobody", X, "FP32", "unknown model 'nobody'"),
        ("two", X.astype(np.int64), "INT64", "datatype INT64, expected FP32"),
        ("two", X[0], "FP32", "of rank 1, expected"),
        ("two", np.zeros((1, 3), np.float32), "FP32", "size 3 on axis 1, expected 2"),
        ("gather", np.array([4]), "INT64", "-4,3"),
        ("strings", np.array([b"\xff\xfe"], np.object_), "BYTES", "UTF-8"),
    ],
)
async def test_errors_carry_the_fact(client: Triton, model: str, array: Any, datatype: str, text: str) -> None:
    with pytest.raises(InferenceServerException, match=text):
        await client.infer(model, client.input("x", array, datatype))


@every_client
async def test_a_timeout_is_kept(client: Triton) -> None:
    slow = client.input("x", np.array([[2000]], np.float32), "FP32")
    with pytest.raises(InferenceServerException, match="within"):
        await client.infer("slow", slow, timeout=20_000)
    with pytest.raises(InferenceServerException):
        await client.infer("slow", slow, **({"timeout": 20_000} if client.is_http else {"client_timeout": 0.02}))


async def test_async_infer_of_the_blocking_clients(open_server: Server) -> None:
    def ask_http() -> list[Any]:
        module = CLIENTS["http"]
        with module.InferenceServerClient(f"127.0.0.1:{open_server.http_port}", concurrency=4) as client:
            given = module.InferInput("x", [1, 2], "FP32").set_data_from_numpy(X)
            asked = [client.async_infer("two", [given]) for _ in range(8)]
            return [one.get_result().as_numpy("y").tolist() for one in asked]

    def ask_grpc() -> list[Any]:
        module, answers = CLIENTS["grpc"], queue.Queue[Any]()
        with module.InferenceServerClient(f"127.0.0.1:{open_server.grpc_port}") as client:
            given = module.InferInput("x", [1, 2], "FP32").set_data_from_numpy(X)
            for _ in range(8):
                client.async_infer("two", [given], lambda result, error: answers.put(error or result))
            return [answers.get(timeout=30).as_numpy("y").tolist() for _ in range(8)]

    assert await asyncio.to_thread(ask_http) == [[[2, 3]]] * 8
    assert await asyncio.to_thread(ask_grpc) == [[[2, 3]]] * 8


async def test_a_cancelled_call_ends_at_once_and_the_next_is_right(open_server: Server) -> None:
    async with open_triton("grpc.aio", open_server) as client:
        slow = client.input("x", np.array([[3000]], np.float32), "FP32")
        for _ in range(20):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.infer("slow", slow), 0.005)
        assert (await client.infer("two", client.input("x", X, "FP32"))).as_numpy("y").tolist() == [[2, 3]]


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
async def test_half_precision_numbers_over_json(open_server: Server, datatype: str) -> None:
    model = "identity_float16" if datatype == "FP16" else "identity_bfloat16"
    values = [1.5, -0.0, 65504] if datatype == "FP16" else [1.5, 3.0e38, 1e-40]
    exact = np.array([values], np.float16 if datatype == "FP16" else ml_dtypes.bfloat16)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{open_server.http_port}") as client:
        tensor = {"name": "x", "datatype": datatype, "shape": [1, 3], "data": values}
        answer = await client.post(f"/v2/models/{model}/infer", json={"inputs": [tensor]})
        (output,) = answer.json()["outputs"]
        assert output["datatype"] == datatype
        assert np.array([output["data"]], exact.dtype).tobytes() == exact.tobytes()
        too_large = {**tensor, "data": [70000 if datatype == "FP16" else 1e39, 0, 0]}
        refused = await client.post(f"/v2/models/{model}/infer", json={"inputs": [too_large]})
        assert refused.status_code == 400
        assert "'x'" in refused.json()["error"]


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.wire.startswith("FP8")])
async def test_8_bit_floats_in_every_form(open_server: Server, dtype: DType) -> None:
    raw = bytes([0x38, 0x40, 0x01])
    values = np.frombuffer(raw, dtype.to_numpy()).astype(np.float32)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{open_server.http_port}") as client:
        tensor = {"name": "x", "datatype": dtype.wire, "shape": [1, 3], "data": values.tolist()}
        path = f"/v2/models/identity_{dtype.name}/infer"
        answer = await client.post(path, json={"inputs": [tensor]})
        assert np.float32(answer.json()["outputs"][0]["data"]).tobytes() == values.tobytes()
        binary = {"name": "x", "datatype": dtype.wire, "shape": [1, 3], "parameters": {"binary_data_size": 3}}
        head = orjson.dumps({"inputs": [binary], "parameters": {"binary_data_output": True}})
        header = {"Inference-Header-Content-Length": str(len(head))}
        answer = await client.post(path, content=head + raw, headers=header)
        assert answer.content.endswith(raw)
