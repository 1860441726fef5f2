from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc.aio as grpc_client
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException

from tidemill.batching import BatchRecord
from tidemill.serving.metrics import Load, Metrics

WriteModel = Callable[..., Path]

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def series(page: str) -> Series:
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    # The parser appends to counters what Triton's names lack.
    return {
        (
            sample.name.removesuffix("_total") if sample.name.startswith("nv_") else sample.name,
            frozenset(sample.labels.items()),
        ): sample.value
        for sample in samples
    }


def value(found: Series, name: str, **labels: str) -> float:
    return sum(number for (n, given), number in found.items() if n == name and labels.items() <= dict(given).items())


def test_b32_every_series_stands_at_zero_from_the_start() -> None:
    metrics = Metrics()
    metrics.model("m", "1")
    found = series(metrics.expose().decode())
    of_model = {key: number for key, number in found.items() if ("model", "m") in key[1]}
    assert of_model
    assert not any(of_model.values())
    for reason in ("REJECTED", "CANCELED", "BACKEND", "OTHER"):
        key = ("nv_inference_request_failure", frozenset({"model": "m", "version": "1", "reason": reason}.items()))
        assert found[key] == 0


def test_rows_runs_and_requests_are_counted_apart() -> None:
    metrics = Metrics()
    model = metrics.model("m", "1")
    model.on_batch(BatchRecord(rows=8, queue_seconds=(0.001,) * 4, run_seconds=0.002, failures=0))
    for _ in range(4):
        model.on_request("rest", "ok", 0.004)
    found = series(metrics.expose().decode())
    assert value(found, "tidemill_batch_size_count", model="m") == 1
    assert value(found, "tidemill_batch_size_sum", model="m") == 8
    assert value(found, "tidemill_queue_duration_seconds_count", model="m") == 4
    assert value(found, "tidemill_request_duration_seconds_count", model="m", outcome="success") == 4
    assert value(found, "nv_inference_count", model="m") == 8
    assert value(found, "nv_inference_exec_count", model="m") == 1
    assert value(found, "nv_inference_compute_infer_duration_us", model="m") == 8000


def test_counts_outlive_a_reload_and_an_unknown_code_is_internal() -> None:
    metrics = Metrics()
    metrics.model("m", "1").on_request("grpc", "no such code", 1.0)
    metrics.model("m", "1").on_request("grpc", "internal", 1.0)
    found = series(metrics.expose().decode())
    assert value(found, "tidemill_requests_total", model="m", protocol="grpc", code="internal") == 2


def test_labels_are_escaped() -> None:
    metrics = Metrics()
    metrics.model('a"b\\c\nd', "1")
    labels = frozenset({"model": 'a"b\\c\nd', "version": "1"}.items())
    assert series(metrics.expose().decode())["nv_inference_count", labels] == 0


REST_REQUESTS: list[tuple[str, str, dict[str, Any], str]] = [
    ("gather", "ok", {"shape": [1], "data": [1]}, "gather"),
    ("gather", "unprocessable", {"shape": [1], "data": [4]}, "gather"),
    ("gather", "invalid_argument", {"shape": [1, 1], "data": [1]}, "gather"),
    ("gather", "invalid_argument", {"shape": "malformed"}, "gather"),
    ("nobody", "not_found", {"shape": [1], "data": [1]}, ""),
]


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
@pytest.mark.parametrize(("model", "code", "tensor", "label"), REST_REQUESTS)
async def test_each_request_moves_one_counter_by_one(
    write_model: WriteModel,
    start_server: Any,
    connect: Any,
    protocol: str,
    model: str,
    code: str,
    tensor: Any,
    label: str,
) -> None:
    server = await start_server(write_model("gather"))
    client: httpx.AsyncClient = connect(server)
    before = series((await client.get("/metrics")).text)
    if protocol == "rest":
        body = {"inputs": [{"name": "x", "datatype": "INT64", **tensor}]}
        await client.post(f"/v2/models/{model}/infer", json=body)
    else:
        await infer_over_grpc(server.grpc_port, model, tensor)
    after = series((await client.get("/metrics")).text)
    moved = {
        key: after[key] - before[key]
        for key in after
        if key[0] == "tidemill_requests_total" and after[key] != before[key]
    }
    labels = {"model": label, "version": "1" if label else "", "protocol": protocol, "code": code}
    assert moved == {("tidemill_requests_total", frozenset(labels.items())): 1.0}
    outcome = "success" if code == "ok" else "failure"
    assert value(after, "tidemill_request_duration_seconds_count", outcome=outcome, protocol=protocol) == 1
    assert value(after, "nv_inference_request_success") == (1 if code == "ok" else 0)
    assert value(after, "tidemill_model_state", model="gather", state="READY") == 1
    assert value(after, "tidemill_inflight_requests") == 0


async def infer_over_grpc(port: int, model: str, tensor: dict[str, Any]) -> None:
    shape = tensor["shape"] if isinstance(tensor["shape"], list) else [-1]
    x = grpc_client.InferInput("x", shape, "INT64")
    x._raw_content = np.array(tensor.get("data", [0]), np.int64).tobytes()
    async with grpc_client.InferenceServerClient(f"127.0.0.1:{port}") as client:
        try:
            await client.infer(model, [x])
        except InferenceServerException:
            assert tensor["shape"] != [1] or model == "nobody" or tensor["data"] == [4]


def test_a_batchs_joining_splitting_and_padding_are_histograms() -> None:
    metrics = Metrics()
    model = metrics.model("m", "1")
    model.on_batch(BatchRecord(4, (0.0,), 0.1, 0, input_seconds=0.002, output_seconds=0.004, length=8, padding=0.25))
    model.on_batch(BatchRecord(4, (0.0,), 0.1, 0))
    page = metrics.expose().decode()
    labels = 'model="m",version="1"'
    assert f"tidemill_compute_input_duration_seconds_sum{{{labels}}} 0.002" in page
    assert f"tidemill_compute_output_duration_seconds_sum{{{labels}}} 0.004" in page
    assert f'tidemill_padding_ratio_bucket{{le="0.3",{labels}}} 1.0' in page
    assert f"tidemill_padding_ratio_count{{{labels}}} 1.0" in page


def test_versions_that_are_long_gone_leave_no_series() -> None:
    metrics = Metrics()
    for number in range(1, 41):
        version = str(number)
        metrics.model("m", version).on_request("rest", "ok", 0.1)
        metrics.set_state("m", version, "READY", ["READY", "UNAVAILABLE"])
        metrics.watch_load("m", version, Load(lambda: 0, lambda: 0, lambda: 0.0))
        metrics.loaded("m", version, 0.1)
        metrics.placed("m", version, {"CPU": 1})
        metrics.generation.observers("m", version)
        metrics.served("m", version)
        if number > 1:
            metrics.gone("m", str(number - 1))
    metrics.served("m", "39")  # it is loaded again
    metrics.gone("m", "40")
    metrics.gone("m", "40")
    found = series(metrics.expose().decode())
    versions = {dict(labels)["version"] for _, labels in found if ("model", "m") in labels}
    assert versions == {str(number) for number in range(32, 41)}
    assert value(found, "tidemill_requests_total", version="39") == 1
