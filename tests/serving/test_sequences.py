"""Sequences behind both faces, judged by Triton's clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc
from running_sums import STATE, write_sums
from triton import CLIENTS, open_triton

from tidemill.serving import Server

StartServer = Callable[..., Awaitable[Server]]
Connect = Callable[[Server], httpx.AsyncClient]


@pytest.fixture
async def server(tmp_path: Path, start_server: StartServer) -> Server:
    write_sums(tmp_path / "sums" / "1", {"sequence": STATE | {"max_candidate_sequences": 2}})
    return await start_server(tmp_path)


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("name", [5, 2**63, "recording 5"])
async def test_a_sequence_over_each_client(server: Server, kind: str, name: int | str) -> None:
    if name == 2**63 and kind.startswith("grpc"):
        name = 2**62  # the client's field is an int64
    async with open_triton(kind, server) as triton:
        config = await triton("get_model_config", "sums")
        batching = config.get("config", config)["sequence_batching"]
        assert [state["input_name"] for state in batching["state"]] == ["sum"]
        assert [tensor["name"] for tensor in (await triton("get_model_metadata", "sums"))["inputs"]] == ["x"]
        x, totals = triton.input("x", np.ones((1, 1), np.float32), "FP32"), []
        for place in range(4):
            flags = {"sequence_start": place == 0, "sequence_end": place == 3}
            answer = await triton.infer("sums", x, sequence_id=name, **flags)
            totals.append(float(answer.as_numpy("y")[0, 0]))
            assert answer.as_numpy("next_sum") is None
    assert totals == [1, 2, 3, 4]


async def test_a_stream_keeps_the_order_of_a_sequence(server: Server) -> None:
    def speak() -> list[float]:
        totals: list[Any] = []
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            client.start_stream(lambda result, error: totals.append(error or result.as_numpy("y")[0, 0]))
            for place in range(40):
                tensor = tritonclient.grpc.InferInput("x", [1, 1], "FP32")
                tensor.set_data_from_numpy(np.full((1, 1), place, np.float32))
                flags = {"sequence_start": place == 0, "sequence_end": place == 39}
                client.async_stream_infer("sums", [tensor], sequence_id=9, **flags)
            client.stop_stream()
        return totals

    assert await asyncio.to_thread(speak) == np.arange(40).cumsum().tolist()


async def test_what_goes_wrong_has_a_status(server: Server, connect: Connect) -> None:
    client = connect(server)

    async def ask(**parameters: Any) -> tuple[int, str]:
        tensor = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}
        answer = await client.post("/v2/models/sums/infer", json={"inputs": [tensor], "parameters": parameters})
        return answer.status_code, answer.json().get("error", "")

    assert (await ask(sequence_id=1, sequence_start=True))[0] == 200
    assert (await ask(sequence_id=2, sequence_start=True))[0] == 200
    for parameters, status, text in (
        ({}, 400, "must name the sequence"),
        ({"sequence_id": 3}, 400, "there is no sequence 3"),
        ({"sequence_id": 3, "sequence_start": True}, 503, "2 sequences go on"),
        ({"sequence_id": [1]}, 400, "parameter 'sequence_id'"),
        ({"sequence_id": 1, "sequence_end": 1}, 400, "expected a boolean"),
    ):
        found, told = await ask(**parameters)
        assert (found, text in told) == (status, True), told
