"""The OpenAPI document, the page that shows it, and a server that keeps to it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from tidemill.serving import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


# Others of the same form stand for these.
SPARED = ("gather", "identity", "mean", "slow", "sum", "tokens", "value")


@pytest.fixture
def base_url(shared_server: Server) -> str:
    return f"http://127.0.0.1:{shared_server.http_port}"


async def test_every_model_has_a_schema_of_its_own(base_url: str) -> None:
    async with httpx.AsyncClient(base_url=base_url) as client:
        document = (await client.get("/v2/openapi.json")).json()
        paths = document["paths"]
        request = paths["/v2/models/two/infer"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        answer = paths["/v2/models/two/infer"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert {"/v2/models/negate/infer", "/v2/models/strings/generate", "/v2/repository/index"} <= paths.keys()
        given = await client.post("/v2/models/two/infer", json=request["example"])
        assert given.status_code == 200
        jsonschema_rs.validate(request, request["example"])
        jsonschema_rs.validate(answer, given.json())
        tensor = request["example"]["inputs"][0]
        for wrong in ({"shape": [1, 3]}, {"shape": [1]}, {"datatype": "FP64"}, {"name": "w"}, {"data": ["a"]}):
            with pytest.raises(jsonschema_rs.ValidationError):
                jsonschema_rs.validate(request, {"inputs": [{**tensor, **wrong}]})


async def test_models_that_are_not_ready_are_left_out(base_url: str, shared_server: Server) -> None:
    async with httpx.AsyncClient(base_url=base_url) as client:
        await client.post("/v2/repository/models/mean/unload")
        assert "/v2/models/mean/infer" not in (await client.get("/v2/openapi.json")).json()["paths"]
        await client.post("/v2/repository/models/mean/load")
        assert "/v2/models/mean/infer" in (await client.get("/v2/openapi.json")).json()["paths"]


@pytest.mark.parametrize("path", ["/docs", "/v2/docs"])
async def test_the_page_needs_nothing_from_elsewhere(base_url: str, path: str) -> None:
    async with httpx.AsyncClient(base_url=base_url) as client:
        page = await client.get(path)
    assert page.headers["content-type"].startswith("text/html")
    assert "/v2/openapi.json" in page.text
    assert "://" not in page.text
    assert "src=" not in page.text


async def test_no_request_that_follows_the_document_breaks_the_server(base_url: str) -> None:
    # In a thread, so that the server's loop stays free to answer.
    calls = await asyncio.to_thread(explore, base_url)
    assert len(calls) > 150
    assert {status for _, status in calls} >= {200, 400, 404}
    async with httpx.AsyncClient(base_url=base_url) as client:
        assert (await client.get("/v2/health/live")).json() == {"live": True}


def explore(base_url: str) -> list[tuple[str, int]]:
    calls: list[tuple[str, int]] = []
    schema: Any = schemathesis.openapi.from_url(f"{base_url}/v2/openapi.json")
    for result in schema.get_all_operations():
        operation = result.ok()
        model = operation.path.split("/")[3] if operation.path.startswith("/v2/models/") else ""
        if model in SPARED:
            continue
        # Loading and unloading would take the models away from the next case; other tests do it.
        if not operation.path.endswith(("/unload", "/load", "/logging")):
            calls += explore_operation(operation, GenerationMode.POSITIVE, base_url)
            if operation.body:
                calls += explore_operation(operation, GenerationMode.NEGATIVE, base_url)
    return calls


def explore_operation(operation: Any, mode: GenerationMode, base_url: str) -> list[tuple[str, int]]:
    calls: list[tuple[str, int]] = []

    @settings(
        max_examples=5,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        answer = case.call(base_url=base_url)
        calls.append((operation.path, answer.status_code))
        assert answer.status_code < 500 or answer.status_code == 501, (operation.path, answer.text)
        assert answer.status_code < 400 or answer.json()["error"]

    check()
    return calls
