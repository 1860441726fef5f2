"""What KServe's runtime starts: one model at a mount point, served under the InferenceService's name."""

from __future__ import annotations

import asyncio
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from chart import render


@pytest.mark.parametrize("mounted", ["model", "version"])
async def test_the_runtimes_own_arguments_serve_what_is_mounted(write_model: Callable[..., Path], mounted: str) -> None:
    folder = write_model("two") / "two"
    (runtime,) = render({"kserve": {"enabled": True}}).of_kind("ClusterServingRuntime")
    (container,) = runtime["spec"]["containers"]
    ports = {
        "--http-port=8080": "--http-port=0",
        "--grpc-port=9000": "--grpc-port=0",
        "--host=0.0.0.0": "--host=127.0.0.1",
    }
    given = [str(ports.get(argument, argument)).replace("{{.Name}}", "mine") for argument in container["args"]]
    where = str(folder if mounted == "model" else folder / "1")
    given = [argument.replace("/mnt/models", where) for argument in given]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tidemill.cli", *given, stdout=PIPE)
    try:
        assert process.stdout
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        assert "serves 1 model(s)" in line
        port = re.findall(r"127\.0\.0\.1:(\d+)", line)[0]
        body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            answer = (await client.post("/v2/models/mine/infer", json=body)).json()
        assert answer["outputs"][0]["data"] == [2.0, 3.0]
    finally:
        process.kill()
        await process.communicate()


async def test_one_name_needs_one_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidemill.cli", "serve", str(tmp_path), str(tmp_path), "--model-name", "mine"]
    process = await asyncio.create_subprocess_exec(*command, stderr=PIPE)
    _, told = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert "--model-name mine names the model of one folder; 2 were given" in told.decode()
