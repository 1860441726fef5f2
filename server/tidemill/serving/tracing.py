"""Requests and batches as OpenTelemetry spans, sent to a collector over OTLP; made from times that are known anyway.

    infer MODEL          the request, from its first byte to its answer, under the caller's trace
      queue              waiting for a run
      batch              joined, run, split; linked to the batch's own span
        infer            the model's run
    batch MODEL          one for each run, in a trace of its own

Spans are made once a request is over, so nothing is kept open, and one that is not sampled costs a look at its header.
The variables of OpenTelemetry's SDK hold (OTEL_SERVICE_NAME, OTEL_EXPORTER_OTLP_HEADERS, ...).
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tidemill.batching.record import BatchRecord
from tidemill.errors import ConfigError
from tidemill.protocol.types import Timing
from tidemill.serving.config import ServerConfig
from tidemill.serving.seen import RequestSeen

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext

__all__ = ["Tracing", "open_tracing"]

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_BATCHES = 1024
"""Batches that requests can be linked to; each is told of before its requests are answered."""


class Tracing:
    """Makes the spans of one server."""

    def __init__(self, provider: TracerProvider, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin.

        Args:
            provider: Samples the spans, and sends them.
            clock: The server's, in seconds.
        """
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("tidemill")
        self._propagator = TraceContextTextMapPropagator()
        self._offset = time.time_ns() - round(clock() * 1e9)
        self._batches: OrderedDict[int, tuple[BatchRecord, SpanContext]] = OrderedDict()

    def on_batch(self, model: str, version: str, record: BatchRecord) -> None:
        """Tell of one run of a model."""
        attributes: dict[str, str | int] = {
            "model.name": model,
            "model.version": version,
            "batch.rows": record.rows,
            "batch.requests": record.requests,
            "batch.failures": record.failures,
        }
        span = self._tracer.start_span(f"batch {model}", start_time=self._at(record.started), attributes=attributes)
        span.end(self._at(record.started + record.seconds))
        self._batches[id(record)] = record, span.get_span_context()
        if len(self._batches) > _BATCHES:
            self._batches.popitem(last=False)

    def on_request(self, seen: RequestSeen) -> None:
        """Tell of one request."""
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        attributes = {
            "rpc.system": "grpc" if seen.protocol in ("grpc", "stream") else "http",
            "model.name": seen.model,
            "model.version": seen.version,
            "tidemill.protocol": seen.protocol,
            "tidemill.code": seen.code,
        }
        parent = self._propagator.extract(dict(seen.carrier))
        begin = self._at(seen.started)
        span = self._tracer.start_span(
            f"infer {seen.model}".strip(), parent, SpanKind.SERVER, attributes, start_time=begin
        )
        if seen.code != "ok":
            span.set_status(Status(StatusCode.ERROR, seen.reason[:500]))
        if seen.timing is not None and span.is_recording():
            self._tell_stages(seen.timing, set_span_in_context(span))
        span.end(self._at(seen.started + seen.seconds))

    def close(self) -> None:
        """Send what is left; takes up to seconds where the collector does not answer."""
        self._provider.shutdown()

    def _tell_stages(self, timing: Timing, within: Any) -> None:
        from opentelemetry.trace import Link, set_span_in_context

        record = timing.batch
        if not isinstance(record, BatchRecord):
            return
        begin, joined = record.started, record.started + record.input_seconds
        queue = self._tracer.start_span("queue", within, start_time=self._at(begin - timing.queue_seconds))
        queue.end(self._at(begin))
        _, batch = self._batches.get(id(record), (record, None))
        links = [Link(batch)] if batch else []
        attributes = {"batch.rows": record.rows, "batch.requests": record.requests}
        span = self._tracer.start_span("batch", within, attributes=attributes, links=links, start_time=self._at(begin))
        run = self._tracer.start_span("infer", set_span_in_context(span), start_time=self._at(joined))
        run.end(self._at(joined + record.run_seconds))
        span.end(self._at(begin + record.seconds))

    def _at(self, moment: float) -> int:
        """Nanoseconds since 1970 of a moment in the server's clock."""
        return self._offset + round(moment * 1e9)


def open_tracing(config: ServerConfig, environ: Mapping[str, str] = os.environ) -> Tracing | None:
    """What the configuration, or OpenTelemetry's own variables, ask for; None for nothing.

    Raises:
        ConfigError: Tracing is asked for in the configuration, and its packages are not installed.
    """
    asked = any(environ.get(name) for name in _ENDPOINTS) and environ.get("OTEL_SDK_DISABLED", "").lower() != "true"
    if config.otlp_endpoint is None and not asked:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        if config.otlp_endpoint is None:
            return None
        raise ConfigError("otlp_endpoint needs OpenTelemetry's packages: pip install 'tidemill[tracing]'") from None
    # Without an endpoint of its own the exporter reads the variables.
    endpoint = f"{config.otlp_endpoint.rstrip('/')}/v1/traces" if config.otlp_endpoint else None
    return Tracing(_provider(OTLPSpanExporter(endpoint=endpoint), config.trace_sampling, environ))


def _provider(exporter: SpanExporter, share: float, environ: Mapping[str, str]) -> TracerProvider:
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if named else {SERVICE_NAME: "tidemill"})
    provider = TracerProvider(ParentBased(TraceIdRatioBased(share)), resource)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
