"""How fast a server writes text: many callers of OpenAI's completions, each token timed as it comes.

Any server of that API can be measured. Tokens are counted by the `usage` that the last chunk of a stream tells.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx
import numpy as np
import orjson

from tidemill.bench.sizes import Sizes
from tidemill.errors import InferenceFailed

__all__ = ["TextLoad", "TextReport", "bench_texts", "texts_table"]

_SHARES = (0.5, 0.9, 0.99)
_WORDS = ("water", "gate", "wheel", "tide", "mill", "stone", "grain", "the", "of", "and", "rises", "turns")


@dataclass(frozen=True, slots=True)
class TextLoad:
    """What is asked, and by how many.

    Attributes:
        url: Where the server is, such as "http://localhost:8000".
        model: The model.
        concurrency: Callers that each wait for their text before they ask again; 0 for an open loop.
        rate: Texts a second that come by themselves, as a Poisson process; 0 for a closed loop.
        prompt: Words of a prompt.
        tokens: Tokens of an answer.
        seconds: How long is measured.
        warmup: Seconds of load before that.
        headers: Sent with every request.
        timeout: Seconds of one text.
        seed: Of prompts, lengths and arrivals.
    """

    url: str
    model: str
    concurrency: int = 0
    rate: float = 0.0
    prompt: Sizes = field(default_factory=lambda: Sizes.parse("16:128"))
    tokens: Sizes = field(default_factory=lambda: Sizes.parse("16:128"))
    seconds: float = 10.0
    warmup: float = 2.0
    headers: tuple[tuple[str, str], ...] = ()
    timeout: float = 120.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Text:
    """One answered text: when it was asked for, its seconds to the first token and to the last, its tokens."""

    asked: float
    first: float
    last: float
    read: int
    made: int


@dataclass(frozen=True, slots=True)
class TextReport:
    """What came of one load.

    Attributes:
        load: What was asked, in words.
        texts: Texts that were answered in the measured time.
        failed: Texts that were not.
        tokens_per_second: Tokens that were made.
        read_per_second: Tokens of prompts.
        first: Seconds to the first token: the median, and what 90 and 99 % are below.
        between: Seconds between two tokens of a text, the mean of each text; likewise.
        whole: Seconds to the last token; likewise.
        reason: Why the first text that failed did.
    """

    load: str
    texts: int
    failed: int
    tokens_per_second: float
    read_per_second: float
    first: tuple[float, ...]
    between: tuple[float, ...]
    whole: tuple[float, ...]
    reason: str = ""

    @property
    def times(self) -> tuple[tuple[float, ...], ...]:
        """All three kinds of times."""
        return self.first, self.between, self.whole

    def to_document(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def bench_texts(load: TextLoad, clock: Callable[[], float] = time.perf_counter) -> TextReport:
    """Have texts made for a while.

    Raises:
        InferenceFailed: Not one text was answered.
    """
    return asyncio.run(_Bench(load, clock).run())


class _Bench:
    def __init__(self, load: TextLoad, clock: Callable[[], float]) -> None:
        self._load, self._clock = load, clock
        self._random = np.random.default_rng(load.seed)
        self._texts: list[_Text] = []
        self._faults: list[tuple[float, str]] = []

    async def run(self) -> TextReport:
        load = self._load
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        headers = dict(load.headers)
        async with httpx.AsyncClient(base_url=load.url, headers=headers, timeout=load.timeout, limits=limits) as client:
            begun = self._clock()
            end = begun + load.warmup + load.seconds
            if load.rate:
                await self._arrive(client, end)
            else:
                await asyncio.gather(*(self._call_until(client, end) for _ in range(load.concurrency)))
            over = self._clock()
        return self._report(begun + load.warmup, over)

    async def _call_until(self, client: httpx.AsyncClient, end: float) -> None:
        while self._clock() < end:
            await self._ask(client)

    async def _arrive(self, client: httpx.AsyncClient, end: float) -> None:
        tasks: set[asyncio.Task[None]] = set()
        due = self._clock()
        while (due := due + float(self._random.exponential(1 / self._load.rate))) < end:
            await asyncio.sleep(max(0.0, due - self._clock()))
            tasks.add(asyncio.create_task(self._ask(client)))
        await asyncio.gather(*tasks)

    async def _ask(self, client: httpx.AsyncClient) -> None:
        asked = self._clock()
        try:
            self._texts.append(await self._stream(client, asked))
        except (httpx.HTTPError, InferenceFailed) as error:
            self._faults.append((asked, str(error) or type(error).__name__))
            # A server that refuses at once is not asked without a pause.
            await asyncio.sleep(0.05)

    async def _stream(self, client: httpx.AsyncClient, asked: float) -> _Text:
        body = self._body()
        first, usage = 0.0, None
        async with client.stream("POST", "/v1/completions", json=body) as response:
            if response.status_code != 200:
                told = (await response.aread())[:300].decode(errors="replace")
                raise InferenceFailed(f"{response.status_code}: {told}")
            async for line in response.aiter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                chunk = orjson.loads(line[6:])
                if "error" in chunk:
                    raise InferenceFailed(str(chunk["error"].get("message")))
                first = first or (self._clock() if chunk["choices"] else 0.0)
                usage = chunk.get("usage") or usage
        last = self._clock()
        if usage is None or not first:
            raise InferenceFailed("the stream ended without telling its usage")
        return _Text(asked, first - asked, last - asked, usage["prompt_tokens"], usage["completion_tokens"])

    def _body(self) -> dict[str, Any]:
        load, random = self._load, self._random
        words = random.choice(_WORDS, load.prompt.draw(random))
        return {
            "model": load.model,
            "prompt": f"{random.integers(1 << 30)} {' '.join(words)}",
            "max_tokens": load.tokens.draw(random),
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def _report(self, begin: float, over: float) -> TextReport:
        load = self._load
        texts = [text for text in self._texts if text.asked >= begin]
        faults = [reason for asked, reason in self._faults if asked >= begin]
        if not texts:
            reason = faults[0] if faults else "none ended in time; measure for longer (--window)"
            raise InferenceFailed(f"no text of model {load.model!r} was answered: {reason}")
        seconds = over - begin
        between = [(text.last - text.first) / (text.made - 1) for text in texts if text.made > 1]
        return TextReport(
            load=f"{load.rate:g} texts/s" if load.rate else f"{load.concurrency} callers",
            texts=len(texts),
            failed=len(faults),
            tokens_per_second=sum(text.made for text in texts) / seconds,
            read_per_second=sum(text.read for text in texts) / seconds,
            first=_quantiles([text.first for text in texts]),
            between=_quantiles(between or [0.0]),
            whole=_quantiles([text.last for text in texts]),
            reason=faults[0] if faults else "",
        )


def texts_table(reports: list[TextReport]) -> str:
    """The reports one below the other; times in milliseconds as median / 90 % / 99 %."""
    titles = ["load", "texts", "failed", "tokens/s", "read/s", "first token ms", "between tokens ms", "whole text ms"]
    rows = [
        [
            report.load,
            f"{report.texts}",
            f"{report.failed}",
            f"{report.tokens_per_second:.1f}",
            f"{report.read_per_second:.1f}",
            *(
                " / ".join(f"{one * 1e3:.0f}" for one in times)
                for times in (report.first, report.between, report.whole)
            ),
        ]
        for report in reports
    ]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [titles, *rows]]
    reasons = [f"{report.load}: {report.reason}" for report in reports if report.reason]
    return "\n".join(lines + reasons)


def _quantiles(values: list[float]) -> tuple[float, ...]:
    return tuple(float(one) for one in np.quantile(values, _SHARES))
