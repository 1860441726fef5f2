"""Which text is in which slot of a cache, and what is done next; pure: it is told of time by nobody and runs nothing.

The first `decoding` slots hold texts that get one token a step. One more slot may hold a text whose prompt is being
read, a chunk a step. All others keep the tokens of texts that are over, since what comes next often begins alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.generation.row import Row

__all__ = ["Chunk", "Move", "Slots", "Step"]

_WORTH_COPYING = 16
"""Tokens; reading fewer again costs less than it is to copy them from a text that goes on."""


@dataclass(frozen=True, slots=True)
class Move:
    """Tokens that go from slot to slot before a step.

    Attributes:
        first: A slot.
        second: Another.
        length: How many tokens.
        swaps: Whether they are exchanged; else those of `first` are copied into `second`.
    """

    first: int
    second: int
    length: int
    swaps: bool


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a prompt to be read.

    Attributes:
        row: The text.
        slot: Where it is.
        tokens: The part.
    """

    row: Row
    slot: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next: the moves in order, then a token for each row, then the chunk.

    Attributes:
        moves: What goes where.
        rows: The texts in slot 0, 1, ..., each with one token that is not in the cache.
        chunk: A part of a prompt; None if none is to be read.
    """

    moves: tuple[Move, ...]
    rows: tuple[Row, ...]
    chunk: Chunk | None


class Slots:
    """The slots of one cache, and the texts that wait for one."""

    def __init__(self, count: int, chunk: int, lonely_chunk: int) -> None:
        """Begin with empty slots.

        Args:
            count: How many there are.
            chunk: Tokens of a prompt that are read in a step while other texts wait for their next token.
            lonely_chunk: Tokens that are read in a step while none does.
        """
        self._count = count
        self._chunk, self._lonely_chunk = chunk, lonely_chunk
        self._waiting: deque[Row] = deque()
        self._rows: list[Row] = []
        self._reading: tuple[int, Row] | None = None
        self._kept: dict[int, list[int]] = {}
        self._order: dict[int, int] = dict.fromkeys(range(count), 0)
        self._ticks = 0
        self._moves: list[Move] = []

    @property
    def waiting(self) -> int:
        """Texts that wait for a slot."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Texts that have one."""
        return len(self._rows) + (self._reading is not None)

    @property
    def tokens(self) -> int:
        """Tokens of running texts in the cache."""
        rows = [*self._rows, self._reading[1]] if self._reading else self._rows
        return sum(row.cached for row in rows)

    def submit(self, row: Row) -> None:
        """Have a text take its turn."""
        self._waiting.append(row)

    def plan(self) -> Step | None:
        """What to do next; None if there is nothing. Texts that nobody wants leave first."""
        self._drop_gone()
        if self._reading is None:
            self._admit()
        if not self._rows and self._reading is None:
            return None
        moves, self._moves = tuple(self._moves), []
        return Step(moves, tuple(self._rows), self._next_chunk())

    def decoded(self, step: Step) -> None:
        """Note that the token of each row is in the cache; before any of them leaves."""
        for row in step.rows:
            row.cached += 1

    def read(self, chunk: Chunk) -> bool:
        """Note that a chunk is in the cache; whether its prompt is whole and the text has its first logits."""
        chunk.row.cached += len(chunk.tokens)
        return chunk.row.cached == len(chunk.row.tokens)

    def join(self) -> None:
        """Have the text whose prompt was read get a token a step from now on."""
        assert self._reading is not None
        slot, row = self._reading
        self._reading = None
        target = len(self._rows)
        if slot != target:
            self._exchange(slot, target, max(row.cached, len(self._kept.get(target, ()))))
        self._rows.append(row)
        self._kept.pop(target, None)

    def leave(self, row: Row) -> None:
        """End a text; what is in the cache of it stays until its slot is needed."""
        if self._reading and self._reading[1] is row:
            slot, self._reading = self._reading[0], None
            self._keep(slot, row)
            return
        slot, last = self._rows.index(row), len(self._rows) - 1
        if slot != last:
            self._exchange(slot, last, max(row.cached, self._rows[last].cached))
            self._rows[slot] = self._rows[last]
        self._rows.pop()
        self._keep(last, row)

    def clear(self) -> list[Row]:
        """Every text, taken out; and nothing of what is in the cache is used again."""
        rows = [*self._rows, *([self._reading[1]] if self._reading else []), *self._waiting]
        self._rows, self._reading, self._kept, self._moves = [], None, {}, []
        self._waiting.clear()
        return rows

    def _drop_gone(self) -> None:
        for row in [row for row in self._rows if row.gone]:
            self.leave(row)
        if self._reading and self._reading[1].gone:
            self.leave(self._reading[1])
        if any(row.gone for row in self._waiting):
            self._waiting = deque(row for row in self._waiting if not row.gone)

    def _admit(self) -> None:
        if not self._waiting or len(self._rows) == self._count:
            return
        row = self._waiting.popleft()
        slot, shared = self._best_kept(row.request.prompt)
        other, more = self._best_running(row.request.prompt)
        if other is not None and more >= shared + _WORTH_COPYING:
            slot, shared = self._oldest(), more
            self._moves.append(Move(other, slot, shared, swaps=False))
        self._kept.pop(slot, None)
        row.cached = row.reused = shared
        self._reading = slot, row

    def _next_chunk(self) -> Chunk | None:
        if self._reading is None:
            return None
        slot, row = self._reading
        size = self._chunk if self._rows else self._lonely_chunk
        return Chunk(row, slot, tuple(row.tokens[row.cached : row.cached + size]))

    def _best_kept(self, prompt: Sequence[int]) -> tuple[int, int]:
        """The free slot that begins most like a prompt, and how many tokens do; the oldest if none does."""
        shared = {slot: _alike(prompt, tokens) for slot, tokens in self._kept.items() if slot >= len(self._rows)}
        best = max(shared, key=lambda slot: shared[slot], default=None)
        if best is None or not shared[best]:
            return self._oldest(), 0
        return best, shared[best]

    def _best_running(self, prompt: Sequence[int]) -> tuple[int | None, int]:
        shared = [_alike(prompt, row.tokens[: row.cached]) for row in self._rows]
        best = max(range(len(shared)), key=shared.__getitem__, default=None)
        return (None, 0) if best is None else (best, shared[best])

    def _oldest(self) -> int:
        """The free slot that nothing was kept in for the longest time."""
        free = range(len(self._rows), self._count)
        return min(free, key=lambda slot: (slot in self._kept, self._order[slot]))

    def _keep(self, slot: int, row: Row) -> None:
        self._ticks += 1
        self._order[slot] = self._ticks
        self._kept[slot] = row.tokens[: row.cached]

    def _exchange(self, first: int, second: int, length: int) -> None:
        self._moves.append(Move(first, second, length, swaps=True))
        kept = {first: self._kept.pop(second, None), second: self._kept.pop(first, None)}
        self._kept |= {slot: tokens for slot, tokens in kept.items() if tokens is not None}
        self._order[first], self._order[second] = self._order[second], self._order[first]


def _alike(prompt: Sequence[int], tokens: Sequence[int]) -> int:
    """How many tokens at the beginning are the same; never all of the prompt, whose last one must be read anew."""
    most = min(len(prompt) - 1, len(tokens))
    return next((place for place in range(most) if prompt[place] != tokens[place]), most)
