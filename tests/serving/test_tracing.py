"""Spans at a real OTLP receiver: each request under its caller's trace, linked to the batch that it took part in."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tidemill.errors import ConfigError
from tidemill.serving import Server, ServerConfig
from tidemill.serving.tracing import open_tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = PARENT[:-2] + "00"
WAIT = {"batching": {"max_queue_delay_microseconds": 100_000, "policy": "fixed", "preferred_batch_size": [3]}}


class Collector(BaseHTTPRequestHandler):
    """Keeps what is sent to /v1/traces."""

    requests: ClassVar[list[ExportTraceServiceRequest]]

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        assert self.path == "/v1/traces"
        type(self).requests.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()


@pytest.fixture
def collector() -> Iterator[tuple[str, Callable[[], list[Any]]]]:
    """A collector's address, and what gives the spans it has."""

    class Own(Collector):
        requests: ClassVar[list[ExportTraceServiceRequest]] = []

    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        def spans() -> list[Any]:
            parts = [part for request in Own.requests for part in request.resource_spans]
            return [span for part in parts for scope in part.scope_spans for span in scope.spans]

        yield f"http://127.0.0.1:{server.server_port}", spans
        server.shutdown()
        thread.join()


def body(*values: float) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "shape": [1, len(values)], "datatype": "FP32", "data": list(values)}]}


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


async def test_requests_are_linked_to_their_batch(
    write_model: Callable[..., Path], collector: tuple[str, Callable[[], list[Any]]]
) -> None:
    address, spans = collector
    server = Server([write_model("two", config=WAIT)], ServerConfig(http_port=0, grpc_port=0, otlp_endpoint=address))
    await server.start()
    await server.load()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}") as client:
        headers = [{"traceparent": PARENT}, {"traceparent": UNSAMPLED}, {}]
        answers = await asyncio.gather(
            *(client.post("/v2/models/two/infer", json=body(1, 2), headers=one) for one in headers)
        )
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        refused = await client.post("/v2/models/two/infer", json=body(1), headers={"traceparent": PARENT})
        assert refused.status_code == 400
    await server.stop()
    made = spans()
    mine = [span for span in made if span.trace_id.hex() == PARENT[3:35]]
    requests = [span for span in mine if span.name == "infer two"]
    ok = next(span for span in requests if attributes(span)["tidemill.code"] == "ok")
    assert ok.parent_span_id.hex() == PARENT[36:52]
    assert (ok.kind, attributes(ok)["model.version"]) == (2, "1")
    wrong = next(span for span in requests if span is not ok)
    assert (wrong.status.code, attributes(wrong)["tidemill.code"]) == (2, "invalid_argument")
    assert "x" in wrong.status.message
    queue, batch = (next(span for span in mine if span.name == name) for name in ("queue", "batch"))
    run = next(span for span in mine if span.name == "infer")
    assert {queue.parent_span_id, batch.parent_span_id} == {ok.span_id}
    assert run.parent_span_id == batch.span_id
    assert ok.start_time_unix_nano <= queue.start_time_unix_nano <= queue.end_time_unix_nano
    assert queue.end_time_unix_nano <= batch.start_time_unix_nano <= run.start_time_unix_nano
    assert run.end_time_unix_nano <= batch.end_time_unix_nano <= ok.end_time_unix_nano
    (link,) = batch.links
    joined = next(span for span in made if span.span_id == link.span_id)
    assert joined.name == "batch two"
    assert attributes(joined)["batch.requests"] == attributes(batch)["batch.requests"] == 3
    others = [span for span in made if span.name == "batch" and span is not batch]
    # Who sent no trace has one of its own; who sent one that is not sampled has none.
    assert [[one.span_id for one in span.links] for span in others] == [[link.span_id]]


async def test_grpc_calls_and_streams_are_traced(
    write_model: Callable[..., Path], collector: tuple[str, Callable[[], list[Any]]]
) -> None:
    address, spans = collector
    server = Server([write_model("two")], ServerConfig(http_port=0, grpc_port=0, otlp_endpoint=address))
    await server.start()
    await server.load()
    given = triton.InferInput("x", [1, 2], "FP32")
    given.set_data_from_numpy(np.array([[1, 2]], np.float32))
    async with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        for _ in range(3):
            await client.infer("two", [given], headers={"traceparent": PARENT})

        async def requests() -> Any:
            yield {"model_name": "two", "inputs": [given]}

        async for _, error in client.stream_infer(requests(), headers={"traceparent": PARENT}):
            assert error is None
    await server.stop()
    made = [span for span in spans() if span.trace_id.hex() == PARENT[3:35] and span.name == "infer two"]
    assert sorted(attributes(span)["tidemill.protocol"] for span in made) == ["grpc"] * 3 + ["stream"]


async def test_a_collector_that_is_not_there_disturbs_nobody(write_model: Callable[..., Path]) -> None:
    config = ServerConfig(http_port=0, grpc_port=0, otlp_endpoint="http://127.0.0.1:9", drain_limit_seconds=1)
    server = Server([write_model("two")], config)
    await server.start()
    await server.load()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}") as client:
        answer = await client.post("/v2/models/two/infer", json=body(1, 2))
        assert answer.status_code == 200
    await server.stop()


@pytest.mark.parametrize(
    ("environ", "traces"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_opentelemetrys_variables_hold(environ: dict[str, str], traces: bool) -> None:
    tracing = open_tracing(ServerConfig(), environ)
    assert (tracing is not None) is traces
    if tracing:
        tracing.close()


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"tidemill\[tracing\]"):
        open_tracing(ServerConfig(otlp_endpoint="http://127.0.0.1:4318"))
    assert open_tracing(ServerConfig(), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}) is None
