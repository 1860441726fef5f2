"""Continuous batching: a thread that gives every text a token a step, and lets texts join and leave in between."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tidemill.errors import InferenceFailed, QueueFull, ShuttingDown, TidemillError
from tidemill.generation.record import StepRecord, TextRecord
from tidemill.generation.request import Delta, GenerationRequest
from tidemill.generation.row import Constraint, Row
from tidemill.generation.slots import Chunk, Slots, Step
from tidemill.generation.stepper import Stepper
from tidemill.generation.stream import Stream
from tidemill.generation.tokenizer import TextTokenizer

__all__ = ["Generator", "GeneratorOptions", "Observers"]

_LOG = logging.getLogger("tidemill.generation")


@dataclass(frozen=True, slots=True)
class GeneratorOptions:
    """How texts share a model.

    Attributes:
        chunk: Tokens of a prompt read in a step while other texts wait for their next token.
        lonely_chunk: The same while none does.
        max_waiting: Texts that may wait for a slot.
        ends: The tokens by which the model ends a text.
        prepare: Called first on the thread that makes the texts.
    """

    chunk: int = 64
    lonely_chunk: int = 512
    max_waiting: int = 1024
    ends: frozenset[int] = frozenset()
    prepare: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Observers:
    """Who is told what; all are called in the loop in which the generator was made."""

    on_step: Callable[[StepRecord], None] = lambda _: None
    on_text: Callable[[TextRecord], None] = lambda _: None


@dataclass(slots=True)
class _Text:
    """A stream with its times."""

    stream: Stream
    arrived: float
    heeded: float = 0.0
    first: float = 0.0


@dataclass(slots=True)
class _News:
    """What a step brought to the waiting loops."""

    pieces: list[tuple[Stream, Delta]] = field(default_factory=list)
    failures: list[tuple[Stream, Exception]] = field(default_factory=list)
    records: list[TextRecord] = field(default_factory=list)


class Generator:
    """Makes texts with one model; its methods belong to the loop in which it was made.

    Attributes:
        tokenizer: Makes text of tokens.
        options: How texts share the model.
        vocabulary: How many tokens the model knows.
    """

    def __init__(
        self,
        stepper: Stepper,
        tokenizer: TextTokenizer,
        options: GeneratorOptions,
        observers: Observers | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the thread.

        Args:
            stepper: The model; used by the thread only.
            tokenizer: Makes text of tokens.
            options: How texts share the model.
            observers: Who is told of steps and texts.
            clock: Seconds.
        """
        self.vocabulary = stepper.vocabulary
        self.tokenizer = tokenizer
        self.options = options
        self._stepper = stepper
        self._observers = observers or Observers()
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._slots = Slots(stepper.slots, options.chunk, options.lonely_chunk)
        self._texts: dict[Row, _Text] = {}
        self._arrived: deque[_Text] = deque()
        self._awake = threading.Condition()
        self._closed = False
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._last: StepRecord | None = None
        self._began: float | None = None
        self._thread = threading.Thread(target=self._run, name="tidemill-generation", daemon=True)
        self._thread.start()

    @property
    def open(self) -> int:
        """Texts that are not over."""
        return self._open

    @property
    def last_step(self) -> StepRecord | None:
        """The newest step that was made; None before the first."""
        return self._last

    @property
    def step_seconds(self) -> float:
        """Seconds that the step under way has taken by now; 0 if none is."""
        began = self._began
        return 0.0 if began is None else self._clock() - began

    def submit(self, request: GenerationRequest, constraint: Constraint | None = None) -> Stream:
        """Have a text made.

        Args:
            request: What is wanted; prompt and `max_tokens` together have room in a slot.
            constraint: What the tokens must follow; None for nothing.

        Raises:
            QueueFull: Too many texts wait already.
            ShuttingDown: The model is being let go.
        """
        if self._closed:
            raise ShuttingDown("the model is being unloaded")
        if self._open >= self._stepper.slots + self.options.max_waiting:
            raise QueueFull(f"{self._open} texts are being made or wait already (generation.max_waiting)")
        stream = Stream(Row(request, self.tokenizer.writer(), self.options.ends, constraint), self._wake)
        self._count(1)
        with self._awake:
            self._arrived.append(_Text(stream, self._clock()))
            self._awake.notify()
        return stream

    async def drain(self) -> None:
        """Return when every text is over."""
        await self._idle.wait()

    def close(self) -> None:
        """End every text with ShuttingDown, and the thread after its step."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        with self._awake:
            self._awake.notify()

    def _count(self, change: int) -> None:
        self._open += change
        if self._open:
            self._idle.clear()
        else:
            self._idle.set()

    # What follows runs in the thread.

    def _run(self) -> None:
        self.options.prepare()
        while self._welcome():
            self._say_gone()
            step = self._slots.plan()
            if step is not None:
                self._began = self._clock()
                self._make(step)
                self._began = None
            else:
                # All left before there was a step: that nothing runs any more is told all the same.
                self._tell(_News(), self._recorded(self._clock(), 0, 0, (0.0, 0.0)))
        self._slots.clear()
        self._fail(list(self._texts), ShuttingDown("the model was unloaded before the text was whole"))

    def _welcome(self) -> bool:
        """Wait for texts, and take in those that came; False once there is an end."""
        with self._awake:
            while not (self._arrived or self._texts or self._closed):
                self._awake.wait()
            arrived = list(self._arrived)
            self._arrived.clear()
        for text in arrived:
            self._texts[text.stream.row] = text
            self._slots.submit(text.stream.row)
        return not self._closed

    def _say_gone(self) -> None:
        """Count those as over that nobody wants; their rows leave with the next plan."""
        gone = [row for row in self._texts if row.gone]
        news = _News(records=[self._over(row) for row in gone])
        if gone:
            self._tell(news, None)

    def _make(self, step: Step) -> None:
        started, news = self._clock(), _News()
        try:
            for move in step.moves:
                (self._stepper.swap if move.swaps else self._stepper.copy)(move.first, move.second, move.length)
            decoding = self._decode(step, news)
            reading = self._read(step.chunk, news) if step.chunk else 0.0
        except Exception as error:
            _LOG.error("a step of %d texts failed", len(step.rows), exc_info=error)
            known = error if isinstance(error, TidemillError) else InferenceFailed("a step of the generation failed")
            self._fail(self._slots.clear(), known)
            return
        chunk = len(step.chunk.tokens) if step.chunk else 0
        self._tell(news, self._recorded(started, len(step.rows), chunk, (decoding, reading)))

    def _recorded(self, started: float, rows: int, chunk: int, seconds: tuple[float, float]) -> StepRecord:
        slots = self._slots
        return StepRecord(started, rows, chunk, *seconds, slots.waiting, slots.running, slots.tokens)

    def _decode(self, step: Step, news: _News) -> float:
        if not step.rows:
            return 0.0
        started = self._clock()
        logits = self._stepper.decode([row.tokens[-1] for row in step.rows], [row.cached for row in step.rows])
        self._slots.decoded(step)
        for row, own in zip(step.rows, logits, strict=True):
            if not row.gone and self._went_on(row, row.take(own), news):
                self._slots.leave(row)
        return self._clock() - started

    def _read(self, chunk: Chunk, news: _News) -> float:
        started, row = self._clock(), chunk.row
        if row in self._texts and not self._texts[row].heeded:
            self._texts[row].heeded = started
        logits = self._stepper.prefill(chunk.slot, chunk.tokens, row.cached)
        if self._slots.read(chunk) and not row.gone:
            if self._went_on(row, row.take(logits), news):
                self._slots.leave(row)
            else:
                self._slots.join()
        return self._clock() - started

    def _went_on(self, row: Row, piece: Delta, news: _News) -> bool:
        """Pass a piece on; whether the text is over."""
        text = self._texts.get(row)
        if text is None:
            return piece.finish is not None
        text.first = text.first or self._clock()
        news.pieces.append((text.stream, piece))
        if piece.finish is None:
            return False
        news.records.append(self._over(row))
        return True

    def _over(self, row: Row) -> TextRecord:
        text, now = self._texts.pop(row), self._clock()
        heeded = (text.heeded or now) - text.arrived
        first = text.first - text.arrived if text.first else 0.0
        return TextRecord(heeded, first, now - text.arrived, len(row.request.prompt), row.reused, row.made)

    def _fail(self, rows: list[Row], error: Exception) -> None:
        texts = [self._texts[row] for row in rows if row in self._texts]
        news = _News(failures=[(text.stream, error) for text in texts])
        news.records = [self._over(text.stream.row) for text in texts]
        self._tell(news, None)

    def _tell(self, news: _News, step: StepRecord | None) -> None:
        # A loop that was closed has nobody who waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._deliver, news, step)

    # What follows runs in the loop again.

    def _deliver(self, news: _News, step: StepRecord | None) -> None:
        for stream, piece in news.pieces:
            stream.put(piece)
        for stream, error in news.failures:
            stream.fail(error)
        for record in news.records:
            self._observers.on_text(record)
            self._count(-1)
        if step:
            self._last = step
            self._observers.on_step(step)
