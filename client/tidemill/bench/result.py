"""What was measured, as data that goes to JSON and back; knows how it is made of samples and not how it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tidemill.bench.estimates import Estimate, mean_of, quantile_of
from tidemill.bench.samples import Samples
from tidemill.bench.server_shares import ServerShares
from tidemill.bench.settings import Load
from tidemill.errors import ConfigError

__all__ = ["QUANTILES", "Client", "Report", "Result", "Slices"]

QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
FORMAT = 1
_SLICES = 30
_BUSY = 0.90
_LATE = 0.25
_WAITED = 0.10
_MS = 1e3


@dataclass(frozen=True, slots=True)
class Slices:
    """Figures of equal stretches of the measured time, which tell chance from change."""

    rate: tuple[float, ...]
    mean: tuple[float, ...] = ()
    p50: tuple[float, ...] = ()
    p99: tuple[float, ...] = ()

    @classmethod
    def of(cls, samples: Samples, rows: float) -> Slices:
        """Cut by the time of answers: rows a second, and latencies in milliseconds where there were any."""
        right = samples.right
        ends, latencies = samples.ends[right], samples.latencies[right] * _MS
        edges = np.linspace(samples.ends.min(), samples.ends.max(), _SLICES + 1)
        places = np.clip(np.searchsorted(edges, ends, side="right") - 1, 0, _SLICES - 1)
        width = samples.seconds / _SLICES
        parts = [latencies[places == place] for place in range(_SLICES)]
        filled = [part for part in parts if len(part)]
        quantiles = [np.quantile(part, [0.5, 0.99]) for part in filled]
        return cls(
            rate=tuple(len(part) * rows / width for part in parts),
            mean=tuple(float(part.mean()) for part in filled),
            p50=tuple(float(it[0]) for it in quantiles),
            p99=tuple(float(it[1]) for it in quantiles),
        )


@dataclass(frozen=True, slots=True)
class Client:
    """What the load cost, so that nobody takes the client's limit for the server's.

    Attributes:
        processes: That made it.
        busy: CPU time of the busiest of them, as a share of the time.
        late_ms: How late requests of an open loop were sent for want of time on this side, 99 % of them at most.
        waited: Share of requests of an open loop that waited because no connection was free.
    """

    processes: int
    busy: float
    late_ms: float
    waited: float

    @classmethod
    def of(cls, samples: Samples) -> Client:
        """From samples."""
        lags = samples.lags[~np.isnan(samples.lags)]
        return cls(
            processes=len(samples.cpu_seconds),
            busy=max(samples.cpu_seconds) / samples.seconds,
            late_ms=float(np.quantile(lags, 0.99)) * _MS if len(lags) else 0.0,
            waited=float(np.isnan(samples.lags).mean()),
        )


@dataclass(frozen=True)
class Result:
    """One load, measured.

    Attributes:
        load: What was asked.
        steady: Whether the windows agreed.
        seconds: Measured time.
        answered: Requests answered.
        rate: Rows answered a second.
        latency_ms: By name: "mean" and the keys of QUANTILES.
        errors: How many requests failed, by code.
        texts: The first text of each kind of error.
        slices: For comparisons.
        client: What the load cost.
        server: Where the time went there; None if it does not tell.
        notes: What a reader must know before believing the figures.
    """

    load: Load
    steady: bool
    seconds: float
    answered: int
    rate: Estimate
    latency_ms: dict[str, Estimate]
    errors: dict[str, int]
    texts: dict[str, str]
    slices: Slices
    client: Client
    server: ServerShares | None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, load: Load, samples: Samples, *, steady: bool, rows: float, server: ServerShares | None) -> Result:
        """Sum up the samples of the windows that count; `rows` are answered by each request."""
        latencies = samples.latencies[samples.right] * _MS
        # Without an answer there is no latency, and nobody shall read a zero as a fast one.
        known = len(latencies) > 0
        slices = Slices.of(samples, rows) if known else Slices((0.0,))
        figures = {name: quantile_of(latencies, share) for name, share in QUANTILES.items()} if known else {}
        client = Client.of(samples)
        return cls(
            load=load,
            steady=steady,
            seconds=samples.seconds,
            answered=len(latencies),
            rate=mean_of(slices.rate),
            latency_ms={"mean": mean_of(slices.mean), **figures} if known else {},
            errors=samples.errors,
            texts=samples.texts,
            slices=slices,
            client=client,
            server=server,
            notes=_notes(load, samples, client, steady=steady),
        )


def _notes(load: Load, samples: Samples, client: Client, *, steady: bool) -> tuple[str, ...]:
    notes = []
    if not steady:
        notes.append("not steady: the windows did not agree; longer or more windows may settle it")
    if client.busy > _BUSY:
        notes.append(
            f"the client is the bottleneck: one of its {client.processes} process(es) was {client.busy:.0%} busy, the "
            "server may do more (--processes, or a machine with more cores)"
        )
    longest = float(np.quantile(samples.latencies, 0.99)) * _MS if len(samples.latencies) else 0.0
    if load.rate and client.late_ms > _LATE * longest:
        notes.append(f"the client was late: 1 % of requests left {client.late_ms:.2f} ms or more after their time")
    if client.waited > _WAITED:
        notes.append(f"{client.waited:.0%} of requests waited for a free connection: the server is over its limit")
    if errors := sum(samples.errors.values()):
        notes.append(f"{errors} of {len(samples.codes)} requests failed")
    return tuple(notes)


@dataclass(frozen=True)
class Report:
    """All loads of a run, with what it takes to judge them.

    Attributes:
        model: The model's name.
        results: One a load.
        settings: As they were given.
        machine: Where the load was made, and versions.
        server: What the server says of itself.
    """

    model: str
    results: Sequence[Result]
    settings: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        """As JSON."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Report:
        """The inverse of `to_document`.

        Raises:
            ConfigError: The document is not a report, or one of another format.
        """
        if document.get("format") != FORMAT:
            raise ConfigError(f"the report has format {document.get('format')!r}, this version reads {FORMAT}")
        try:
            results = tuple(_result(item) for item in document["results"])
            return cls(document["model"], results, *(document[key] for key in ("settings", "machine", "server")))
        except (KeyError, TypeError) as error:
            raise ConfigError(f"the report is damaged: {error!r}") from error


def _result(item: Mapping[str, Any]) -> Result:
    slices = {name: tuple(values) for name, values in item["slices"].items()}
    return Result(
        **{
            **item,
            "load": Load(**item["load"]),
            "rate": Estimate(**item["rate"]),
            "latency_ms": {name: Estimate(**figure) for name, figure in item["latency_ms"].items()},
            "slices": Slices(**slices),
            "client": Client(**item["client"]),
            "server": ServerShares(**item["server"]) if item["server"] else None,
            "notes": tuple(item["notes"]),
        }
    )
