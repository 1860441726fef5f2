"""Python code between served models: run only where it is allowed, and no more trusted than its declaration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tidemill.serving import Server

StartServer = Callable[..., Awaitable[Server]]
Connect = Callable[[Server], httpx.AsyncClient]

SETTINGS = """\
pipeline:
  models: [two]
  inputs: [{name: a, datatype: FP32, shape: [-1, 2]}]
  outputs: [{name: total, datatype: FP32, shape: [-1, 2]}]
"""
CODE = """\
import asyncio
import numpy as np

async def run(tensors, ask):
    once, twice = await asyncio.gather(*(ask("two", {"x": tensors["a"] * factor}) for factor in (1, 2)))
    if tensors["a"][0, 0] == 13:
        raise RuntimeError("the secret of /etc")
    if tensors["a"][0, 0] == 14:
        return {"total": [[1, 2, 3]]}
    if tensors["a"][0, 0] == 15:
        return await ask("gather", {})
    if tensors["a"][0, 0] == 17:
        raise SystemExit(3)
    if tensors["a"][0, 0] == 16:
        await asyncio.sleep(60)
    return {"total": once["y"] + twice["z"]}
"""


@pytest.fixture
def models(write_model: Callable[..., Path]) -> Path:
    repository = write_model("two")
    write_model("gather")
    (repository / "sums").mkdir()
    (repository / "sums" / "model.yaml").write_text(SETTINGS)
    (repository / "sums" / "pipeline.py").write_text(CODE)
    return repository


@pytest.fixture
async def client(models: Path, start_server: StartServer, connect: Connect) -> httpx.AsyncClient:
    return connect(await start_server(models, allow_code=True))


def body(*values: float, **parameters: Any) -> dict[str, Any]:
    tensor = {"name": "a", "shape": [1, 2], "datatype": "FP32", "data": list(values)}
    return {"inputs": [tensor], "parameters": parameters}


async def test_code_asks_served_models(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(client.post("/v2/models/sums/infer", json=body(number, 1)) for number in range(8)))
    for number, answer in enumerate(answers):
        # y is x + 1, and z is 2 x of twice the input.
        assert answer.json()["outputs"][0]["data"] == [number + 1 + 4 * number, 6.0]
    metadata = (await client.get("/v2/models/sums")).json()
    assert (metadata["platform"], metadata["inputs"][0]["shape"]) == ("python", [-1, 2])
    assert (await client.get("/v2/models/sums/config")).json()["parameters"]["tidemill.models"]["string_value"] == "two"


@pytest.mark.parametrize(
    ("value", "status", "text"),
    [
        (13, 500, "the pipeline of model 'sums' failed"),
        (17, 500, "failed"),
        (14, 500, "not declared"),
        (15, 500, "does not name"),
    ],
)
async def test_what_goes_wrong_in_it_is_told_without_its_secrets(
    value: float, status: int, text: str, client: httpx.AsyncClient
) -> None:
    answer = await client.post("/v2/models/sums/infer", json=body(value, 1))
    assert (answer.status_code, text in answer.text) == (status, True), answer.text
    assert "secret" not in answer.text
    assert (await client.post("/v2/models/sums/infer", json=body(1, 1))).status_code == 200


async def test_it_is_given_up_at_its_deadline(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v2/models/sums/infer", json=body(16, 1, timeout=200_000))
    assert answer.status_code == 504, answer.text


async def test_bad_input_never_gets_there(client: httpx.AsyncClient) -> None:
    wrong = body(1, 2)
    wrong["inputs"][0]["shape"] = [2]
    assert (await client.post("/v2/models/sums/infer", json=wrong)).status_code == 400


async def test_it_follows_the_models_that_it_asks(models: Path, start_server: StartServer, connect: Connect) -> None:
    client = connect(await start_server(models, allow_code=True, model_control="explicit"))
    assert (await client.post("/v2/repository/models/two/unload")).status_code == 200
    assert (await client.get("/v2/models/sums/ready")).status_code == 503
    assert (await client.post("/v2/models/sums/infer", json=body(1, 1))).status_code == 503
    assert (await client.post("/v2/repository/models/two/load")).status_code == 200
    assert (await client.post("/v2/models/sums/infer", json=body(1, 1))).status_code == 200


async def reason(models: Path, start_server: StartServer, connect: Connect, **settings: Any) -> str:
    index = (await connect(await start_server(models, **settings)).post("/v2/repository/index", json={})).json()
    (found,) = [entry for entry in index if entry["name"] == "sums"]
    assert found["state"] == "UNAVAILABLE"
    return str(found["reason"])


async def test_code_is_not_run_unless_it_is_allowed(models: Path, start_server: StartServer, connect: Connect) -> None:
    (models / "sums" / "pipeline.py").write_text("raise SystemExit('was run')")
    assert "--allow-code" in await reason(models, start_server, connect)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("x = 1", "async def run"),
        ("def run(tensors, ask): ...", "async def run"),
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("def run(:", "SyntaxError"),
        (None, "no file"),
    ],
)
async def test_files_that_are_no_pipeline(
    code: str | None, text: str, models: Path, start_server: StartServer, connect: Connect
) -> None:
    file = models / "sums" / "pipeline.py"
    file.unlink() if code is None else file.write_text(code)
    assert text in await reason(models, start_server, connect, allow_code=True)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("models: [two]", "models: [tow]", "did you mean 'two'"),
        ("datatype: FP32, shape: [-1, 2]}]\n  outputs", "shape: [-1, 2]}]\n  outputs", "needs a datatype"),
        ("FP32", "FP31", "FP31"),
    ],
)
async def test_declarations_that_are_wrong(
    old: str, new: str, text: str, models: Path, start_server: StartServer, connect: Connect
) -> None:
    (models / "sums" / "model.yaml").write_text(SETTINGS.replace(old, new))
    assert text in await reason(models, start_server, connect, allow_code=True)
