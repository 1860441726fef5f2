"""The four clients against a live server of their wire: the same calls, the same answers, the same errors."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tidemill import errors
from tidemill.client import AsyncClient, Client
from tidemill.dtype import DType

X = np.arange(6, dtype=np.float32).reshape(2, 3)
CLIENTS = [(Client, "http"), (AsyncClient, "http"), (Client, "grpc"), (AsyncClient, "grpc")]
NAMES = [f"{kind.__name__} {wire}" for kind, wire in CLIENTS]


class Caller:
    """Calls a blocking client in a thread and awaits an asyncio one, so that one test serves both."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def __call__(self, method: str, *arguments: Any, **options: Any) -> Any:
        function = getattr(self.client, method)
        if inspect.iscoroutinefunction(function):
            return await function(*arguments, **options)
        return await asyncio.to_thread(function, *arguments, **options)


@pytest.fixture(params=CLIENTS, ids=NAMES)
async def call(request: pytest.FixtureRequest) -> AsyncIterator[Caller]:
    kind, wire = request.param
    client = kind(f"{wire}://{request.getfixturevalue(f'{wire}_address')}")
    caller = Caller(client)
    yield caller
    await caller("aclose" if hasattr(client, "aclose") else "close")


async def test_infer_returns_outputs_by_name(call: Caller, echo: Any) -> None:
    answer = await call("infer", "echo", {"x": X, "t": ["é", ""]}, id="7")
    assert list(answer) == ["x", "t"]
    np.testing.assert_array_equal(answer["x"], X)
    assert answer["t"].tolist() == ["é".encode(), b""]
    assert echo.requests[0].id == "7"


async def test_version_and_outputs_are_sent(call: Caller, echo: Any) -> None:
    answer = await call("infer", "echo", {"x": X, "z": X}, version="3", outputs=["z"])
    assert list(answer) == ["z"]
    assert echo.requests[0].model_version == "3"


async def test_every_dtype_comes_back_as_it_went(call: Caller) -> None:
    given = {dtype.wire: np.arange(2).astype(dtype.to_numpy()) for dtype in DType if dtype is not DType.string}
    given["BYTES"] = np.array([b"a\0\0", b"\xff"], object)
    answer = await call("infer", "echo", given)
    for name, array in given.items():
        assert answer[name].dtype == array.dtype
        np.testing.assert_array_equal(answer[name], array)


LAYOUTS = {
    "big endian": X.astype(">f4"),
    "fortran": np.asfortranarray(X),
    "strided": np.repeat(X, 2, axis=1)[:, ::2],
    "reversed": X[::-1, ::-1],
    "rank 0": np.array(2.5, np.float32),
    "zero rows": np.empty((0, 3), np.float32),
    "list": [[1.5, 2], [3, 4]],
}


async def test_any_layout_arrives_right(call: Caller) -> None:
    answer = await call("infer", "echo", LAYOUTS)
    for name, array in LAYOUTS.items():
        assert answer[name].shape == np.shape(array)
        np.testing.assert_array_equal(answer[name], array)


async def test_large_tensors_pass_in_both_directions(call: Caller) -> None:
    big = np.zeros(3_000_000, np.float32)
    assert (await call("infer", "echo", {"x": big}))["x"].nbytes == big.nbytes


async def test_metadata_index_and_readiness(call: Caller) -> None:
    assert (await call("server_metadata")).name == "echo"
    assert (await call("metadata", "echo")).inputs[0].wire_shape == [-1, 3]
    assert [entry.state for entry in await call("index")] == ["READY", ""]
    assert await call("server_ready") is True
    assert await call("model_ready", "echo") is True
    assert await call("model_ready", "nobody") is False


@pytest.mark.parametrize(
    ("model", "inputs", "error", "text"),
    [
        ("nobody", {"x": X}, errors.NotFound, "no model 'nobody'"),
        ("full", {"x": X}, errors.Unavailable, "the queue of 'full' holds 8 requests"),
        ("echo", {"x": [[1], [2, 3]]}, errors.InvalidArgument, "input 'x' cannot be sent as a tensor"),
        ("echo", {"x": np.array([1j])}, errors.InvalidArgument, "input 'x' cannot be sent as a tensor"),
        ("echo", {"x": [object()]}, errors.InvalidArgument, "input 'x': element 0 is of type object"),
    ],
)
async def test_errors_are_tidemills_with_the_servers_text(
    call: Caller, model: str, inputs: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await call("infer", model, inputs)


async def test_timeouts_are_raised_on_time(call: Caller) -> None:
    start = time.monotonic()
    with pytest.raises(errors.DeadlineExceeded):
        await call("infer", "stuck", {"x": X}, timeout=0.2)
    assert time.monotonic() - start < 1


@pytest.mark.parametrize(("kind", "wire"), CLIENTS, ids=NAMES)
async def test_a_server_that_is_not_there(kind: type[Any], wire: str) -> None:
    caller = Caller(kind(f"{wire}://127.0.0.1:9"))
    assert await caller("server_ready") is False
    with pytest.raises(errors.Unavailable):
        await caller("infer", "echo", {"x": X})
    await caller("aclose" if hasattr(caller.client, "aclose") else "close")


@pytest.mark.parametrize("wire", ["http", "grpc"])
def test_threads_share_a_client(wire: str, request: pytest.FixtureRequest) -> None:
    address = f"{wire}://{request.getfixturevalue(f'{wire}_address')}/"
    with Client(address) as client, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda i: client.infer("echo", {"x": [i]})["x"][0], range(100)))
    assert answers == list(range(100))


def test_http_connections_are_reused(http_address: str, echo: Any) -> None:
    with Client(http_address) as client:
        for _ in range(20):
            client.infer("echo", {"x": X})
    assert len(echo.peers) == 1


@pytest.mark.parametrize("wire", ["http", "grpc"])
async def test_async_clients_are_context_managers(wire: str, request: pytest.FixtureRequest) -> None:
    async with AsyncClient(f"{wire}://{request.getfixturevalue(f'{wire}_address')}") as client:
        answers = await asyncio.gather(*(client.infer("echo", {"x": [i]}) for i in range(20)))
    assert [answer["x"][0] for answer in answers] == list(range(20))
