"""Loads against a real server, and against one that stalls when a test says so."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest
from raw_server import Handle, raw_server

from tidemill.bench.encoding import encode
from tidemill.bench.measure import Window, agree, measure
from tidemill.bench.result import Report, Result
from tidemill.bench.samples import Samples
from tidemill.bench.session import bench
from tidemill.bench.settings import Load, Settings, Windows
from tidemill.errors import ConfigError, TidemillError

SHORT = Windows(seconds=0.2, warmup_seconds=0.1, needed=2, most=2)
FEEDS = [{"x": np.full((1, 3), value, np.float32)} for value in range(4)]


class Silent:
    def __init__(self) -> None:
        self.told: list[str] = []

    def start(self, load: Load) -> None:
        self.told.append(f"start {load}")

    def tell(self, text: str) -> None:
        self.told.append(text)

    def finish(self, result: Result) -> None:
        self.told.append(f"finish {result.load}")


def settings(server: dict[str, str], model: str = "identity") -> Settings:
    return Settings(model, http_url=server["http"], grpc_url=server["grpc"], windows=SHORT)


def test_all_wires_side_by_side(server: dict[str, str]) -> None:
    loads = [Load(wire, concurrency=2) for wire in ("json", "binary", "grpc", "shm")] + [Load("binary", rate=100)]
    watcher = Silent()
    report = bench(settings(server), loads, FEEDS, watcher)
    assert [result.load for result in report.results] == loads
    for result in report.results:
        assert result.answered > 10
        assert result.errors == {}
        assert 0 < result.latency_ms["p50"].value <= result.latency_ms["p99"].value
        assert result.server is not None
        assert 1 <= result.server.rows_per_run <= 2
        assert result.server.total * 0.999 >= result.server.queue + result.server.infer
        assert result.client.processes == 1
    assert 70 < report.results[-1].rate.value < 130
    assert watcher.told[0] == "start json, 2 callers"
    assert report.server["inputs"] == {"x": "[1, 3]"}
    assert Report.from_document(_as_json(report)) == replace(report, results=tuple(report.results))


def _as_json(report: Report) -> dict[str, object]:
    import json

    document: dict[str, object] = json.loads(json.dumps(report.to_document()))
    return document


def test_rows_are_what_is_counted(server: dict[str, str]) -> None:
    feed = {"x": np.ones((8, 3), np.float32)}
    result = bench(settings(server), [Load("binary", concurrency=1)], [feed], Silent()).results[0]
    assert result.rate.value == pytest.approx(8 * result.answered / result.seconds, rel=0.05)


def test_several_processes_share_the_load(server: dict[str, str]) -> None:
    one = replace(settings(server), processes=2)
    closed, opened = bench(one, [Load("binary", 3), Load("binary", rate=200)], FEEDS, Silent()).results
    assert closed.client.processes == opened.client.processes == 2
    assert 150 < opened.rate.value < 250


def test_the_first_request_must_be_right(server: dict[str, str]) -> None:
    with pytest.raises(TidemillError, match="axis 1"):
        bench(settings(server), [Load("binary", 1)], [{"x": np.ones((1, 4), np.float32)}], Silent())


def test_errors_are_counted_by_kind(server: dict[str, str]) -> None:
    wrong = {"x": np.ones((1, 9), np.float32)}
    result = bench(settings(server), [Load("binary", 2), Load("grpc", 2)], [FEEDS[0], wrong], Silent()).results
    for one in result:
        (count,) = one.errors.values()
        assert list(one.errors) == ["invalid_argument"]
        assert abs(count - one.answered) <= 4
        assert "axis 1" in one.texts["invalid_argument"]
        assert any("requests failed" in note for note in one.notes)


def test_a_wire_needs_its_address(server: dict[str, str]) -> None:
    without = Settings("identity", http_url=server["http"])
    with pytest.raises(ConfigError, match="'grpc' needs the address of gRPC"):
        bench(without, [Load("grpc", 1)], FEEDS, Silent())


def _stalling(seconds: float) -> Handle:
    """Answers at once, but for one moment in which the whole server stands still."""
    served = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        while True:
            await reader.readuntil(b"\r\n\r\n")
            served += 1
            if served == 40:
                time.sleep(seconds)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    return handle


OPEN, CLOSED = Load("json", rate=200, arrivals="constant"), Load("json", concurrency=1)


@pytest.mark.parametrize(("load", "fast", "slow"), [(OPEN, "p50", "p90"), (CLOSED, "p99", "")])
def test_an_open_loop_charges_a_stall_for_all_who_would_have_asked(load: Load, fast: str, slow: str) -> None:
    """A third of the requests at constant pace fall into half a second of one and a half; a caller meets it once."""
    with raw_server(_stalling(0.5)) as port:
        windows = Windows(seconds=1.5, warmup_seconds=0, needed=1, most=1)
        result = measure(Settings("m", http_url=f"http://127.0.0.1:{port}", windows=windows), load, [b"GET /\r\n\r\n"])
    assert result.latency_ms[fast].value < 50
    assert not slow or result.latency_ms[slow].value > 50


def _window(rate: float, latency: float) -> Window:
    count = round(rate)
    ones = np.ones(count)
    return Window(Samples(ones, ones * latency, np.zeros(count, np.int16), ones * 0, ("ok",), seconds=1.0), None, None)


@pytest.mark.parametrize(
    ("rates", "latencies", "expected"),
    [
        ([100, 105, 95], [1, 1, 1], True),
        ([100, 130, 100], [1, 1, 1], False),
        ([100, 100, 100], [1, 1, 1.4], False),
        ([0, 0, 0], [1, 1, 1], False),
    ],
)
def test_windows_agree_in_rate_and_latency(rates: list[float], latencies: list[float], expected: bool) -> None:
    assert agree([_window(*pair) for pair in zip(rates, latencies, strict=True)], 0.1) is expected


def test_encoded_requests_are_what_the_protocol_says() -> None:
    from tidemill.protocol.rest import parse_infer

    one = Settings("a b", "3", http_url="http://host:1", headers=(("authorization", "Bearer k"),))
    for wire in ("json", "binary"):
        (request,) = encode(one, wire, FEEDS[1:2])
        head, _, body = request.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:])
        assert lines[0] == "POST /v2/models/a%20b/versions/3/infer HTTP/1.1"
        assert (fields["host"], fields["authorization"]) == ("host:1", "Bearer k")
        assert int(fields["content-length"]) == len(body)
        length = fields.get("inference-header-content-length")
        parsed = parse_infer(body, int(length) if length else None)
        assert np.array_equal(parsed.inputs["x"], FEEDS[1]["x"])
