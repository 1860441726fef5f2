"""What is counted and timed of generated texts, in Prometheus' format; knows no transport and no model."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge

from tidemill.generation.generator import Observers
from tidemill.generation.record import StepRecord, TextRecord
from tidemill.serving.series import Count, Counters, Distribution, Histograms

__all__ = ["GenerationMetrics"]

_MODEL = ("model", "version")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_KINDS = ("prompt", "cached", "generated")


@dataclass(frozen=True, slots=True)
class _Series:
    """The series of one version of one model."""

    queue: Distribution
    first: Distribution
    token: Distribution
    rows: Distribution
    tokens: dict[str, Count]
    running: Gauge
    waiting: Gauge
    cache: Gauge

    def on_step(self, step: StepRecord) -> None:
        """Count one step of all texts."""
        if step.rows:
            self.rows.observe(step.rows)
        self.running.set(step.running)
        self.waiting.set(step.waiting)
        self.cache.set(step.tokens)

    def on_text(self, text: TextRecord) -> None:
        """Count one text that is over."""
        self.queue.observe(text.queue_seconds)
        if text.tokens:
            self.first.observe(text.first_seconds)
        if text.tokens > 1:
            self.token.observe(text.token_seconds)
        self.tokens["prompt"].inc(text.prompt_tokens)
        self.tokens["cached"].inc(text.cached_tokens)
        self.tokens["generated"].inc(text.tokens)


class GenerationMetrics:
    """The series of all models of one server that make texts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Add the families to a registry."""
        self._registry = registry
        self._known: dict[tuple[str, str], _Series] = {}
        self._queue = self._histogram("queue_seconds", "From a text's arrival to the first step that heeds it.")
        self._first = self._histogram("first_token_seconds", "From a text's arrival to its first token.")
        self._token = self._histogram("token_seconds", "The mean time between two tokens of a text.")
        self._rows = self._histogram("step_rows", "Texts that got a token, per step.", _ROWS)
        self._tokens = Counters("tidemill_generation_tokens_total", "Tokens by what they were.", (*_MODEL, "kind"))
        registry.register(self._tokens)
        self._running = self._gauge("running", "Texts that have a slot.")
        self._waiting = self._gauge("waiting", "Texts that wait for a slot.")
        self._cache = self._gauge("cache_tokens", "Tokens of running texts in the cache.")

    def observers(self, name: str, version: str) -> Observers:
        """What counts the steps and texts of a model's version; its series are 0 from now on, and outlive a reload."""
        labels = (name, version)
        if labels not in self._known:
            self._known[labels] = self._create(labels)
        series = self._known[labels]
        return Observers(series.on_step, series.on_text)

    def forget(self, name: str, version: str) -> None:
        """Drop the series of a model's version."""
        if self._known.pop((name, version), None) is None:
            return
        for family in (self._queue, self._first, self._token, self._rows, self._tokens):
            family.drop(name, version)
        for gauge in (self._running, self._waiting, self._cache):
            gauge.remove(name, version)

    def _create(self, labels: tuple[str, str]) -> _Series:
        return _Series(
            queue=self._queue.labels(*labels),
            first=self._first.labels(*labels),
            token=self._token.labels(*labels),
            rows=self._rows.labels(*labels),
            tokens={kind: self._tokens.labels(*labels, kind) for kind in _KINDS},
            running=self._running.labels(*labels),
            waiting=self._waiting.labels(*labels),
            cache=self._cache.labels(*labels),
        )

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...] = _SECONDS) -> Histograms:
        family = Histograms(f"tidemill_generation_{name}", text, _MODEL, buckets)
        self._registry.register(family)
        return family

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"tidemill_generation_{name}", text, _MODEL, registry=self._registry)
