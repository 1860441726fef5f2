"""What the server counts and times, in Prometheus' format; knows neither transports nor how a batch is formed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from tidemill.batching.record import BatchRecord
from tidemill.serving.generation_metrics import GenerationMetrics
from tidemill.serving.nv_metrics import format_nv_metrics
from tidemill.serving.series import Count, Counters, Distribution, Histograms
from tidemill.serving.statistics import Tally

__all__ = ["PROTOCOLS", "Load", "Metrics", "ModelMetrics"]

PROTOCOLS = ("rest", "grpc", "stream")
OK = "ok"
_CODES = (
    OK,
    "invalid_argument",
    "unauthenticated",
    "unprocessable",
    "not_found",
    "too_large",
    "unsupported_encoding",
    "unsupported",
    "unavailable",
    "deadline_exceeded",
    "cancelled",
    "inference_failed",
    "internal",
)
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_MODEL = ("model", "version")
_GONE = 8
"""Versions of a model that are served no more and still have their series."""
_KEPT = 256
"""Batches that are kept at most until they are counted."""


@dataclass(frozen=True, slots=True)
class Series:
    """What Prometheus is shown of one version of one model."""

    requests: dict[tuple[str, str], Count]
    durations: dict[tuple[str, str], Distribution]
    queue: Distribution
    run: Distribution
    joining: Distribution
    splitting: Distribution
    padding: Distribution
    rows: Distribution


class Load(NamedTuple):
    """How a model is kept busy at the moment.

    Attributes:
        depth: How many requests wait.
        busy: How many instances run.
        longest: Seconds that the oldest run under way has taken.
    """

    depth: Callable[[], int]
    busy: Callable[[], int]
    longest: Callable[[], float]


class ModelMetrics:
    """The series of one version of one model; it is the batcher's observer.

    What is told of batches and of requests that were answered together is kept and counted many at a time, or when
    somebody asks: right after a run of a small model, counting takes longer than the run.
    """

    def __init__(self, series: Series) -> None:
        self._series = series
        self._tally = Tally()
        self._batches: list[BatchRecord] = []
        self._answers: list[tuple[str, float, int]] = []

    @property
    def tally(self) -> Tally:
        """The running sums."""
        self.settle()
        return self._tally

    def on_batch(self, batch: BatchRecord) -> None:
        """Count one run of the model."""
        self._batches.append(batch)
        if len(self._batches) >= _KEPT:
            self.settle()

    def on_requests(self, protocol: str, seconds: float, count: int) -> None:
        """Count some requests that were answered together, each after so many seconds."""
        self._answers.append((protocol, seconds, count))
        self._tally.touch()

    def on_step(self, code: str, seconds: float) -> None:
        """Count one request that an ensemble made: it came over no protocol."""
        self._tally.answered(code, seconds)
        if code == OK:
            self._tally.touch()

    def on_cache(self, hit: bool, seconds: float) -> None:
        """Count one request whose answer was looked for in the cache."""
        (self._tally.cache_hit if hit else self._tally.cache_miss).add(seconds)

    def on_request(self, protocol: str, code: str, seconds: float) -> None:
        """Count one answered request: its error code or "ok", and how long it took from first byte to answer."""
        series = self._series
        key = (protocol, code) if (protocol, code) in series.requests else (protocol, "internal")
        series.requests[key].inc()
        series.durations[protocol, "success" if code == OK else "failure"].observe(seconds)
        self._tally.answered(code, seconds)
        if code == OK:
            self._tally.touch()

    def settle(self) -> None:
        """Count what was kept."""
        batches, self._batches = self._batches, []
        answers, self._answers = self._answers, []
        for batch in batches:
            self._count_batch(batch)
        for protocol, seconds, count in answers:
            self._series.requests[protocol, OK].inc(count)
            self._series.durations[protocol, "success"].observe(seconds, count)
            self._tally.answered(OK, seconds, count)

    def _count_batch(self, batch: BatchRecord) -> None:
        series, waits = self._series, batch.queue_seconds
        series.rows.observe(batch.rows)
        series.run.observe(batch.run_seconds)
        series.joining.observe(batch.input_seconds)
        series.splitting.observe(batch.output_seconds)
        if batch.length:
            series.padding.observe(batch.padding)
        # Those that came together have all waited as long.
        for seconds, count in [(waits[0], len(waits))] if waits[0] == waits[-1] else Counter(waits).items():
            series.queue.observe(seconds, count)
        self._tally.executed(batch)


class Metrics:
    """All series of one server; nothing is global, so that two servers can live in one process.

    Attributes:
        registry: All but Triton's counters.
        generation: The series of models that make texts.
        unknown: Counts requests for models that do not exist.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._models: dict[tuple[str, str], ModelMetrics] = {}
        self._depths: dict[tuple[str, str], Callable[[], int]] = {}
        self._gone: dict[str, dict[str, None]] = {}
        self._families: list[Counters | Histograms] = []
        self._gauges: list[Gauge] = []
        self._requests = self._counter("requests_total", "Answered requests by result.", "protocol", "code")
        self._durations = self._histogram("request_duration_seconds", "First byte to answer.", "protocol", "outcome")
        self._queue = self._histogram("queue_duration_seconds", "Waiting for an instance, per request.")
        self._run = self._histogram("compute_infer_duration_seconds", "Running the model, per batch.")
        self._joining = self._histogram("compute_input_duration_seconds", "Joining the inputs, per batch.")
        self._splitting = self._histogram("compute_output_duration_seconds", "Splitting the outputs, per batch.")
        self._padding = self._histogram("padding_ratio", "Share of a padded batch that is padding.", buckets=_SHARES)
        self._rows = self._histogram("batch_size", "Rows of a batch, per run.", buckets=_ROWS)
        self._load = self._gauge("model_load_duration_seconds", "From opening the bundle to ready.", *_MODEL)
        self._depth = self._gauge("queue_depth", "Requests that wait for an instance.", *_MODEL)
        self._busy = self._gauge("instances_busy", "Instances that run now, on threads of their own.", *_MODEL)
        self._longest = self._gauge("longest_run_seconds", "How long the oldest run under way has taken.", *_MODEL)
        self._nodes = self._gauge("model_nodes", "Nodes that a provider executes.", *_MODEL, "provider")
        self._state = self._gauge("model_state", "1 for the state that the model is in.", *_MODEL, "state")
        self._inflight = self._gauge("inflight_requests", "Requests in the server.")
        self.generation = GenerationMetrics(self.registry)
        self.unknown = self.model("", "")

    def model(self, name: str, version: str) -> ModelMetrics:
        """The series of a model's version, made at 0 when first asked for; they outlive a reload."""
        labels = (name, version)
        if labels not in self._models:
            self._models[labels] = self._create(labels)
        return self._models[labels]

    def loaded(self, name: str, version: str, seconds: float) -> None:
        """Note how long a load took."""
        self._load.labels(name, version).set(seconds)

    def placed(self, name: str, version: str, nodes: Mapping[str, int]) -> None:
        """Note where a model's nodes run."""
        for provider, count in nodes.items():
            self._nodes.labels(name, version, provider).set(count)

    def served(self, name: str, version: str) -> None:
        """Note that a version is there: its series stay."""
        self._gone.get(name, {}).pop(version, None)

    def gone(self, name: str, version: str) -> None:
        """Note that a version is served no more; its series stay until several others of the model have gone after it.

        A model that is replaced every day would else fill memory, and every scrape, with versions that nobody has.
        """
        versions = self._gone.setdefault(name, {})
        versions.pop(version, None)
        versions[version] = None
        if len(versions) > _GONE:
            oldest = next(iter(versions))
            del versions[oldest]
            self._forget(name, oldest)

    def _forget(self, name: str, version: str) -> None:
        self._models.pop((name, version), None)
        self._depths.pop((name, version), None)
        for family in self._families:
            family.drop(name, version)
        for gauge in self._gauges:
            gauge.remove_by_labels({"model": name, "version": version})
        self.generation.forget(name, version)

    def watch_load(self, name: str, version: str, load: Load) -> None:
        """Ask a model for its load at every scrape."""
        self._depths[name, version] = load.depth
        self._depth.labels(name, version).set_function(load.depth)
        self._busy.labels(name, version).set_function(load.busy)
        self._longest.labels(name, version).set_function(load.longest)

    def watch_inflight(self, inflight: Callable[[], int]) -> None:
        """Ask `inflight` at every scrape."""
        self._inflight.set_function(inflight)

    def set_state(self, name: str, version: str, state: str, states: Iterable[str]) -> None:
        """Note the state of a model; the other `states` fall to 0."""
        for known in states:
            self._state.labels(name, version, known).set(known == state)

    def expose(self) -> bytes:
        """The page that Prometheus scrapes."""
        tallies = {labels: model.tally for labels, model in self._models.items() if labels[0]}
        pending = {labels: depth() for labels, depth in self._depths.items()}
        # The tallies are asked for first: with them, what was kept is counted.
        return generate_latest(self.registry) + format_nv_metrics(tallies, pending).encode()

    def _create(self, labels: tuple[str, str]) -> ModelMetrics:
        outcomes = ("success", "failure")
        series = Series(
            requests={(p, code): self._requests.labels(*labels, p, code) for p in PROTOCOLS for code in _CODES},
            durations={
                (p, outcome): self._durations.labels(*labels, p, outcome) for p in PROTOCOLS for outcome in outcomes
            },
            queue=self._queue.labels(*labels),
            run=self._run.labels(*labels),
            joining=self._joining.labels(*labels),
            splitting=self._splitting.labels(*labels),
            padding=self._padding.labels(*labels),
            rows=self._rows.labels(*labels),
        )
        return ModelMetrics(series)

    def _counter(self, name: str, text: str, *labels: str) -> Counters:
        family = Counters(f"tidemill_{name}", text, (*_MODEL, *labels))
        self.registry.register(family)
        self._families.append(family)
        return family

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        gauge = Gauge(f"tidemill_{name}", text, labels, registry=self.registry)
        if labels:
            self._gauges.append(gauge)
        return gauge

    def _histogram(self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Histograms:
        family = Histograms(f"tidemill_{name}", text, (*_MODEL, *labels), buckets)
        self.registry.register(family)
        self._families.append(family)
        return family
