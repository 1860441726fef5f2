"""Answers that are kept: in this process and in a real Redis server."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tidemill.batching import BatchRecord
from tidemill.errors import TidemillError
from tidemill.protocol.types import InferRequest, RequestedOutput
from tidemill.repository import Events, Repository
from tidemill.repository.redis_cache import RedisCache
from tidemill.repository.response_cache import LocalCache, Outputs, ResponseCache

WriteModel = Callable[..., Path]
_CACHED = {"response_cache": {"enable": True}}


class Noted:
    """What was told of the cache and of runs."""

    def __init__(self) -> None:
        self.hits: list[bool] = []
        self.batches: list[BatchRecord] = []

    def events(self) -> Events:
        return Events(
            observer=lambda _: self.batches.append, on_cache=lambda _: lambda hit, seconds: self.hits.append(hit)
        )


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """A Redis server of its own."""
    if shutil.which("redis-server") is None:
        pytest.skip("needs redis-server; run: apt-get install redis-server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert any("Ready to accept connections" in line for line in server.stdout)
        yield f"redis://127.0.0.1:{port}"
        server.terminate()
        server.stdout.read()


@pytest.fixture(params=["local", "redis"])
async def cache(request: pytest.FixtureRequest) -> AsyncIterator[ResponseCache]:
    if request.param == "local":
        yield LocalCache(1 << 20)
        return
    kept = RedisCache(request.getfixturevalue("redis_url"))
    await kept._redis.flushdb()
    yield kept
    await kept.close()


async def settle() -> None:
    """Let what was started on the loop be stored."""
    for _ in range(20):
        await asyncio.sleep(0.001)


def ask(x: NDArray[Any], outputs: tuple[str, ...] = (), **parameters: Any) -> InferRequest:
    wanted = tuple(RequestedOutput(name) for name in outputs)
    return InferRequest("two", {"x": x}, outputs=wanted, parameters=parameters)


ONES = np.ones((1, 2), np.float32)


async def test_only_what_has_the_same_answer_is_found(write_model: WriteModel, cache: ResponseCache) -> None:
    noted = Noted()
    repository = Repository.open([write_model("two", config=_CACHED)], noted.events(), cache=cache)
    await repository.load_all()

    async def infer(*given: Any, **parameters: Any) -> Mapping[str, Any]:
        response = await repository.get("two").infer(ask(*given, **parameters))
        await settle()
        return response.outputs

    first = await infer(ONES)
    again = await infer(ONES.copy(), priority=1, timeout=5_000_000, binary_data_output=True)
    assert noted.hits == [False, True]
    assert len(noted.batches) == 1
    for name, array in first.items():
        np.testing.assert_array_equal(again[name], array)
        assert again[name].dtype == array.dtype
    for given in ((ONES, ("y",)), (ONES, ("z", "y")), (ONES * 2,), (np.ones((2, 2), np.float32),)):
        noted.hits.clear()
        one, other = await infer(*given), await infer(*given)
        assert noted.hits == [False, True]
        assert list(one) == list(other)
    noted.hits.clear()
    await infer(ONES, seed=1)
    await infer(ONES, seed="1")
    assert noted.hits == [False, False]
    repository.close()


async def test_errors_are_not_kept(write_model: WriteModel, cache: ResponseCache) -> None:
    noted = Noted()
    repository = Repository.open([write_model("gather", config=_CACHED)], noted.events(), cache=cache)
    await repository.load_all()
    served = repository.get("gather")
    for _ in range(2):
        with pytest.raises(TidemillError):
            await served.infer(InferRequest("gather", {"x": np.array([9])}))
        await settle()
    assert not any(noted.hits)
    assert sum(batch.failures for batch in noted.batches) == 2
    repository.close()


async def test_a_model_that_changed_answers_anew(write_model: WriteModel, cache: ResponseCache) -> None:
    noted = Noted()
    root = write_model("value", "v", config=_CACHED, k=1.0)
    repository = Repository.open([root], noted.events(), cache=cache)
    await repository.load_all()
    request = InferRequest("v", {"x": np.zeros((1, 1), np.float32)})

    async def value() -> float:
        response = await repository.get("v").infer(request)
        await settle()
        return float(response.outputs["y"][0, 0])

    assert [await value(), await value()] == [1, 1]
    shutil.rmtree(root / "v" / "1")
    write_model("value", "v", config=_CACHED, k=7.0)
    await repository.load("v")
    assert [await value(), await value()] == [7, 7]
    assert noted.hits == [False, True, False, True]
    repository.close()


async def test_texts_are_kept_too(write_model: WriteModel, cache: ResponseCache) -> None:
    noted = Noted()
    repository = Repository.open([write_model("strings", config=_CACHED)], noted.events(), cache=cache)
    await repository.load_all()
    texts = np.array([b"ab", "ü".encode()], np.object_)
    for _ in range(2):
        answer = await repository.get("strings").infer(InferRequest("strings", {"x": texts}))
        assert answer.outputs["y"].tolist() == texts.tolist()
        await settle()
    # The same bytes, cut elsewhere.
    await repository.get("strings").infer(InferRequest("strings", {"x": np.array([b"a", "bü".encode()], np.object_)}))
    assert noted.hits[:2] == [False, True]
    assert not any(noted.hits[2:])
    repository.close()


async def test_what_is_kept_cannot_be_changed() -> None:
    cache, made = LocalCache(1 << 20), np.arange(4.0)

    def run() -> asyncio.Future[Outputs]:
        future: asyncio.Future[Outputs] = asyncio.get_running_loop().create_future()
        future.set_result({"y": made})
        return future

    await cache.answer(b"k", run, lambda hit, seconds: None)
    await settle()
    made[:] = -1
    found = (await cache.answer(b"k", run, lambda hit, seconds: None))["y"]
    assert found.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 5


async def test_the_least_recently_used_go_first_and_the_limit_holds() -> None:
    cache, hits = LocalCache(5000), []

    async def use(key: bytes, size: int = 1000) -> None:
        def run() -> asyncio.Future[Outputs]:
            future: asyncio.Future[Outputs] = asyncio.get_running_loop().create_future()
            future.set_result({"y": np.zeros(size, np.int8)})
            return future

        await cache.answer(key, run, lambda hit, seconds: hits.append(hit))
        await settle()
        assert cache.used <= 5000

    for key in (b"a", b"b", b"c", b"a", b"d", b"a", b"b"):
        await use(key)
    assert hits == [False, False, False, True, False, True, False]
    await use(b"large", 6000)
    await use(b"large", 6000)
    assert hits[-2:] == [False, False]


async def test_a_redis_that_is_away_costs_only_the_cache(
    write_model: WriteModel, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        cache = RedisCache(f"redis://127.0.0.1:{free.getsockname()[1]}")
        repository = Repository.open([write_model("two", config=_CACHED)], cache=cache)
        await repository.load_all()
        for _ in range(3):
            assert (await repository.get("two").infer(ask(ONES))).outputs["y"].tolist() == [[2, 2]]
        await cache.close()
    assert caplog.text.count("does not answer") == 1
    repository.close()


async def test_what_is_no_answer_is_not_found(redis_url: str) -> None:
    cache, hits = RedisCache(redis_url), []
    await cache._redis.set(b"tidemill:1:k", b"\x05\0\0\0nonsense")

    def run() -> asyncio.Future[Outputs]:
        future: asyncio.Future[Outputs] = asyncio.get_running_loop().create_future()
        future.set_result({"y": ONES})
        return future

    assert (await cache.answer(b"k", run, lambda hit, seconds: hits.append(hit)))["y"] is ONES
    assert hits == [False]
    await cache.close()


async def test_sequences_are_never_kept(write_model: WriteModel) -> None:
    root = write_model("two", config=_CACHED | {"sequence": {}})
    repository = Repository.open([root], cache=LocalCache(1 << 20))
    await repository.load_all()
    assert "response_cache contradicts sequence" in repository.find("two").reason
    repository.close()
