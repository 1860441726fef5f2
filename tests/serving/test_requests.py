"""How single requests are found again: by their ids in answers and logs, and in the flight recorder."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import asking

from tidemill.serving.logs import configure_logs

WriteModel = Callable[..., Path]

_BODY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 1], "data": [1.0, 2.0]}]}
_INFER = "/v2/models/v/infer"


@pytest.mark.parametrize("fast", [True, False], ids=["fast lane", "normal lane"])
async def test_the_callers_id_comes_back_and_an_unusable_one_does_not(
    write_model: WriteModel, start_server: Any, connect: Any, fast: bool
) -> None:
    client = connect(await start_server(write_model("value", "v", k=3), http_fast_lane=fast))
    for path, status in ((_INFER, 200), ("/v2/models/other/infer", 404)):
        for given in ("abc-1", "f" * 128):
            answer = await client.post(path, json=_BODY, headers={"X-Request-Id": given})
            assert (answer.status_code, answer.headers["x-request-id"]) == (status, given)
        for unusable in ("two words", "f" * 129, "é".encode()):
            answer = await client.post(path, json=_BODY, headers={"X-Request-Id": unusable})
            assert answer.status_code == status
            assert "x-request-id" not in answer.headers
    wrong = await client.post(_INFER, json={"inputs": []}, headers={"X-Request-Id": "w"})
    assert (wrong.status_code, wrong.headers["x-request-id"]) == (400, "w")
    assert (await client.get("/v2", headers={"X-Request-Id": "m"})).headers["x-request-id"] == "m"


@pytest.mark.usefixtures("restored_logging")
@pytest.mark.parametrize("wanted", ["none", "failed", "all"])
async def test_requests_are_logged_with_ids_as_it_is_wanted(
    write_model: WriteModel, start_server: Any, capsys: pytest.CaptureFixture[str], wanted: str
) -> None:
    server = await start_server(write_model("value", "v", k=3), request_log=wanted)
    configure_logs("info", "json")
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"x-request-id": "one", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    for wire in ("rest", "grpc"):
        async with asking(wire, server, headers=headers) as ask:
            assert (await ask("v", np.ones((2, 1), np.float32))).code == "OK"
            assert (await ask("v", np.ones((2, 2), np.float32))).code in ("400", "INVALID_ARGUMENT")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    told = [line for line in lines if line["logger"] == "tidemill.requests"]
    codes = {"none": [], "failed": ["invalid_argument"] * 2, "all": ["ok", "invalid_argument"] * 2}
    assert [line["code"] for line in told] == codes[wanted]
    assert {(line["request_id"], line["model"], line["version"]) for line in told} <= {("one", "v", "1")}
    assert {line["protocol"] for line in told} == ({"rest", "grpc"} if told else set())
    assert all("expected" in line["reason"] for line in told if line["code"] != "ok")
    assert all(line["batch_size"] == 2 and line["total_ms"] >= line["infer_ms"] for line in told if "infer_ms" in line)
    if wanted == "all":
        assert {line["trace_id"] for line in told} == {trace}


@pytest.mark.usefixtures("restored_logging")
@pytest.mark.parametrize("style", ["json", "text"])
async def test_what_nobody_expected_is_found_by_the_id_that_the_caller_is_told(
    write_model: WriteModel,
    start_server: Any,
    connect: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    style: str,
) -> None:
    server = await start_server(write_model("value", "v", k=3))
    configure_logs("info", style)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("what nobody shall see")

    monkeypatch.setattr(server.service, "begin", fail)
    monkeypatch.setattr(server.service, "infer", fail)
    client = connect(server)
    for lane, sent in (("fast", _BODY), ("normal", {**_BODY, "id": "x"})):
        for given in ("mine", ""):
            headers = {"x-request-id": given} if given else {}
            headers |= {"accept": "text/plain"} if lane == "normal" else {}
            answer = await client.post(_INFER, json=sent, headers=headers)
            assert answer.status_code == 500
            assert "nobody shall see" not in answer.text
            name = answer.json()["error"].rpartition(" ")[2]
            assert name == given or len(name) == 16
            log = capsys.readouterr().err
            assert "what nobody shall see" in log
            assert (json.loads(log)["request_id"] == name) if style == "json" else (f"[request {name}]" in log)
    async with asking("grpc", server, headers={"x-request-id": "mine"}) as ask:
        refused = await ask("v", np.ones((2, 1), np.float32))
        assert (refused.code, refused.fault.rpartition(" ")[2]) == ("INTERNAL", "mine")
    assert logging.getLogger("tidemill.grpc").isEnabledFor(logging.ERROR)


async def test_the_recorder_keeps_the_shapes_and_times_of_the_last_requests(
    write_model: WriteModel, start_server: Any, connect: Any
) -> None:
    server = await start_server(write_model("value", "v", k=3), recorded_requests=5)
    client = connect(server)
    for _ in range(4):
        await client.post(_INFER, json=_BODY)
    await client.post("/v2/models/nobody/infer", json=_BODY, headers={"x-api-key": "secret"})
    async with asking("grpc", server) as ask:
        await ask("v", np.ones((3, 1), np.float32))
        await ask("v", np.ones((3, 1), np.float64))
    kept = (await client.get("/v2/requests")).json()["requests"]
    assert [(one["protocol"], one["model"], one["code"]) for one in kept] == [
        *[("rest", "v", "ok")] * 2,
        ("rest", "", "not_found"),
        ("grpc", "v", "ok"),
        ("grpc", "v", "invalid_argument"),
    ]
    assert [[(it["name"], it["datatype"], it["shape"]) for it in one["inputs"]] for one in kept] == [
        *[[("x", "FP32", [2, 1])]] * 2,
        [],
        [("x", "FP32", [3, 1])],
        [("x", "FP64", [3, 1])],
    ]
    assert [one["batch_size"] for one in kept] == [2, 2, 0, 3, 0]
    assert all(one["total_us"] >= one["infer_us"] > 0 for one in kept if one["code"] == "ok")
    assert [one["time"] for one in kept] == sorted(one["time"] for one in kept)


async def test_without_a_recorder_nothing_is_kept(write_model: WriteModel, start_server: Any, connect: Any) -> None:
    server = await start_server(write_model("value", "v", k=3), recorded_requests=0)
    client = connect(server)
    await client.post(_INFER, json=_BODY)
    assert (await client.get("/v2/requests")).json() == {"requests": []}
