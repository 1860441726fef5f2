"""Requests of a flight recorder sent again at their times, and their latencies then and now; knows no files.

A server's recorder (`/v2/requests`) tells shapes and times and no values: those are drawn anew from each model's
signature. Requests keep to their times whatever the server does, as those who sent them first did.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from tidemill.bench.connections import opener
from tidemill.bench.encoding import encode
from tidemill.bench.inputs import Generator
from tidemill.bench.loops import OpenLoop
from tidemill.bench.samples import Recorder, Samples
from tidemill.bench.settings import Settings
from tidemill.errors import ConfigError
from tidemill.protocol.types import TensorSpec

__all__ = ["Recorded", "Replayed", "read_recording", "replay", "replay_table"]

_SHARES = (0.5, 0.99)
_MS = 1e3
_LEAD_SECONDS = 0.05
"""Until the first request, so that connections stand by then."""

Signature: TypeAlias = Callable[[str, str], Sequence[TensorSpec]]
"""The inputs of a version of a model."""
Sizes: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request of a recording.

    Attributes:
        at: Seconds after the first.
        model: The model.
        version: The version that answered.
        sizes: The shape of each input by name.
        seconds: How long the server had it.
    """

    at: float
    model: str
    version: str
    sizes: Sizes
    seconds: float


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of the requests for one model.

    Attributes:
        model: The model.
        requests: How many were sent.
        recorded_ms: Their time in the server then: half of them and 99 % took no longer.
        replayed_ms: From the time that each was due until its answer was here, likewise; empty if none was answered.
        errors: How many failed now, by code.
    """

    model: str
    requests: int
    recorded_ms: tuple[float, ...]
    replayed_ms: tuple[float, ...]
    errors: dict[str, int]

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def read_recording(document: Any) -> list[Recorded]:
    """The requests of a recorder's document that were answered, in the order in which they came.

    Raises:
        ConfigError: It is no such document, or holds no answered request.
    """
    try:
        answered = [one for one in document["requests"] if one["code"] == "ok" and one["inputs"]]
        found = sorted((_read(one) for one in answered), key=lambda one: one.at)
    except (TypeError, KeyError, ValueError) as error:
        raise ConfigError(f"this is no recording of /v2/requests: {error!r}") from None
    if not found:
        raise ConfigError("the recording holds no request that was answered; is recorded_requests 0 there?")
    return [replace(one, at=one.at - found[0].at) for one in found]


def replay(
    settings: Settings, recorded: Sequence[Recorded], signature: Signature, wire: str, speed: float = 1.0
) -> list[Replayed]:
    """Send the requests again.

    Args:
        settings: Where to, with what headers and how many connections; its model counts for nothing.
        recorded: The requests.
        signature: Tells what each model takes.
        wire: "json", "binary" or "grpc".
        speed: How much faster than they came; 2 for twice as fast.

    Raises:
        ConfigError: The speed is not above 0.
        TidemillError: A model is not there, or takes other inputs than it did.
    """
    if not speed > 0:
        raise ConfigError(f"the speed is {speed:g}, expected a number above 0, such as 2 for twice as fast")
    models = list(dict.fromkeys(one.model for one in recorded))
    parts = {model: [one for one in recorded if one.model == model] for model in models}
    work = {model: _encoded(replace(settings, model=model), part, signature, wire) for model, part in parts.items()}
    samples = asyncio.run(_send(settings, {model: (parts[model], work[model]) for model in models}, wire, speed))
    return [_compared(model, parts[model], samples[model]) for model in models]


def replay_table(results: Sequence[Replayed]) -> str:
    """One line a model."""
    rows = [("model", "requests", "errors", "p50 ms then", "now", "p99 ms then", "now")]
    for one in results:
        now = [f"{value:.2f}" for value in one.replayed_ms] or ["-"] * len(_SHARES)
        errors = ", ".join(f"{count} {code}" for code, count in one.errors.items()) or "0"
        then = [f"{value:.2f}" for value in one.recorded_ms]
        rows.append((one.model, f"{one.requests:,}", errors, then[0], now[0], then[1], now[1]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.rjust, row, widths)) for row in rows)


def _read(one: Mapping[str, Any]) -> Recorded:
    sizes = tuple((str(given["name"]), tuple(map(int, given["shape"]))) for given in one["inputs"])
    return Recorded(float(one["time"]), str(one["model"]), str(one["version"]), sizes, float(one["total_us"]) / 1e6)


def _encoded(settings: Settings, part: Sequence[Recorded], signature: Signature, wire: str) -> list[bytes]:
    """One request for each, the same bytes for those of the same shapes."""
    rng, specs, known = np.random.default_rng(settings.seed), signature(settings.model, ""), dict[Sizes, bytes]()
    for one in part:
        if one.sizes not in known:
            feed = Generator(specs).of_shapes(dict(one.sizes), rng)
            known[one.sizes] = encode(settings, wire, [feed])[0]
    return [known[one.sizes] for one in part]


class _Counted(Recorder):
    """Tells when so many requests have ended."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._left = count
        self.done = asyncio.Event()

    def add(self, intended: float, sent: float, error: Exception | None, *, waited: bool = False) -> None:
        """Count one."""
        super().add(intended, sent, error, waited=waited)
        self._left -= 1
        if self._left <= 0:
            self.done.set()


async def _send(
    settings: Settings, work: Mapping[str, tuple[Sequence[Recorded], Sequence[bytes]]], wire: str, speed: float
) -> dict[str, Samples]:
    open_connection = opener(settings, wire)
    recorders = {model: _Counted(len(part)) for model, (part, _) in work.items()}
    loops = [OpenLoop(open_connection, requests, recorders[model]) for model, (_, requests) in work.items()]
    start = time.perf_counter() + _LEAD_SECONDS
    try:
        for loop, (part, _) in zip(loops, work.values(), strict=True):
            loop.start((start + one.at / speed for one in part), settings.most_inflight)
        last = max(part[-1].at for part, _ in work.values()) / speed
        await _all_ended(loops, recorders.values(), last + settings.timeout_seconds)
    finally:
        for loop in loops:
            loop.stop()
    return {model: recorder.take() for model, recorder in recorders.items()}


async def _all_ended(loops: Sequence[OpenLoop], recorders: Any, limit: float) -> None:
    """Return once every request was answered; those that were not within the limit count as failed."""
    try:
        async with asyncio.timeout(limit):
            for recorder in recorders:
                await recorder.done.wait()
    except TimeoutError:
        for loop in loops:
            loop.expire(0.0)


def _compared(model: str, part: Sequence[Recorded], samples: Samples) -> Replayed:
    then = np.array([one.seconds for one in part]) * _MS
    now = samples.latencies[samples.right] * _MS
    quantiles = tuple(np.quantile(now, _SHARES).tolist()) if len(now) else ()
    return Replayed(model, len(part), tuple(np.quantile(then, _SHARES).tolist()), quantiles, samples.errors)
