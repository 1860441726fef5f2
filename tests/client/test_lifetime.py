"""Clients leave nothing behind: no descriptor, no task, no warning; loops, threads and servers may change."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidemill import errors
from tidemill.client import AsyncClient, Client

X = np.arange(6, dtype=np.float32).reshape(2, 3)
WIRES = pytest.mark.parametrize("wire", ["http", "grpc"])


@pytest.fixture
def url(wire: str, request: pytest.FixtureRequest) -> str:
    return f"{wire}://{request.getfixturevalue(f'{wire}_address')}"


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
@WIRES
def test_a_thousand_calls_leak_no_descriptor(url: str, echo: Any) -> None:
    with Client(url) as client:
        client.infer("echo", {"x": X})
        before = descriptors()
        for _ in range(1000):
            client.infer("echo", {"x": X})
        # The server of the test lives in this process too; a leak would show as hundreds.
        assert descriptors() <= before + 8
    assert len(echo.peers) <= 1


@WIRES
async def test_a_thousand_awaited_calls_leak_no_task(url: str, echo: Any) -> None:
    async with AsyncClient(url) as client:
        await client.infer("echo", {"x": X})
        tasks, before = len(asyncio.all_tasks()), descriptors()
        for _ in range(1000):
            await client.infer("echo", {"x": X})
        assert len(asyncio.all_tasks()) == tasks
        assert descriptors() <= before + 8
    assert len(echo.peers) <= 1


@WIRES
async def test_cancelled_calls_leave_the_client_usable(url: str) -> None:
    async with AsyncClient(url) as client:
        tasks = len(asyncio.all_tasks())
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.infer("stuck", {"x": X}), 0.05)
        np.testing.assert_array_equal((await client.infer("echo", {"x": X}))["x"], X)
        assert len(asyncio.all_tasks()) <= tasks + 1


@WIRES
def test_a_second_loop_works(url: str) -> None:
    client = AsyncClient(url)
    for _ in range(2):
        answer = asyncio.run(client.infer("echo", {"x": X}))
        np.testing.assert_array_equal(answer["x"], X)
    asyncio.run(client.aclose())


PROGRAM = """
import asyncio, gc, sys, threading
import numpy as np
from tidemill.client import AsyncClient, Client
x = np.ones((1, 3), np.float32)
clients = [Client(sys.argv[1]), AsyncClient(sys.argv[1])]
clients[0].infer("echo", {"x": x})
async def main():
    await clients[1].infer("echo", {"x": x})
asyncio.run(main())
clients.clear()
thread = threading.Thread(target=gc.collect)
thread.start()
thread.join()
"""


@WIRES
def test_a_client_that_is_dropped_warns_of_nothing(url: str) -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", PROGRAM, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@WIRES
def test_what_numpy_cannot_say_is_refused_before_anything_is_sent(url: str, echo: Any) -> None:
    refused = [
        np.array(["2026-01-01"], "datetime64[D]"),
        np.array([1 + 2j]),
        np.zeros(2, [("a", "i4")]),
        np.ma.masked_array([1.0, 2.0], [True, False]),
        np.array([{}], object),
        np.array([1, "a"], object),
    ]
    with Client(url) as client:
        for array in refused:
            with pytest.raises(errors.InvalidArgument, match="input 'x'"):
                client.infer("echo", {"x": array})
    assert echo.requests == []


class OfDlpack:
    """What another library hands out."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


@WIRES
def test_dlpack_text_and_not_a_number_keep_their_bits(url: str) -> None:
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-45], np.float32)
    odd.view(np.uint32)[0] = 0x7FC12345
    texts = np.array([b"x\0\0", b"", b"a\0b", "é😀".encode(), b"\n", b"\xff\xfe"], object)
    inputs = {
        "dlpack": OfDlpack(X),
        "odd": odd,
        "texts": texts,
        "u": np.array(["é😀", "a\0b"]),
        "s": np.array([b"a\0b", b""]),
        "none": np.empty((0, 3), object),
    }
    with Client(url) as client:
        answer = client.infer("echo", inputs)
    np.testing.assert_array_equal(answer["dlpack"], X)
    assert answer["odd"].tobytes() == odd.tobytes()
    assert answer["texts"].tolist() == texts.tolist()
    assert answer["u"].tolist() == ["é😀".encode(), b"a\0b"]
    assert answer["s"].tolist() == [b"a\0b", b""]
    assert answer["none"].shape == (0, 3)


@WIRES
def test_handles_check_before_anything_is_sent(url: str, echo: Any) -> None:
    with Client(url) as client:
        model = client.model("echo")
        np.testing.assert_array_equal(model.infer({"x": X})["x"], X)
        sent = len(echo.requests)
        for inputs, text in [
            ({"z": X}, "no input 'z'; it has 'x'"),
            ({"x": X.astype(np.float64)}, "holds FP64, expected FP32"),
            ({"x": X[0]}, r"has shape \[3\], expected x: FP32"),
            ({"x": X[:, :2]}, r"has shape \[2, 2\]"),
        ]:
            with pytest.raises(errors.InvalidArgument, match=text):
                model.infer(inputs)
        with pytest.raises(errors.InvalidArgument, match="no output 'q'"):
            model.infer({"x": X}, outputs=["q"])
    assert len(echo.requests) == sent


def test_options_of_another_name_are_told() -> None:
    with Client("localhost:9") as client, pytest.raises(TypeError, match="no option 'time_out'"):
        client.infer("m", {}, time_out=3)  # type: ignore[call-arg]
