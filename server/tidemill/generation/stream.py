"""What one generation gives, as it comes, from the thread that makes it to the loop that waits; knows no model."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from tidemill.generation.request import Delta
from tidemill.generation.row import Row

__all__ = ["Stream"]


class Stream:
    """The pieces of one text; belongs to the event loop that asked for it.

    Attributes:
        row: The text in the making.
        prompt_tokens: How many tokens the prompt has.
    """

    def __init__(self, row: Row, on_cancel: Callable[[], None]) -> None:
        """Begin to wait.

        Args:
            row: The text.
            on_cancel: Called once if nobody wants it any more before it is whole.
        """
        self.row = row
        self.prompt_tokens = len(row.request.prompt)
        self._on_cancel = on_cancel
        self._pieces: deque[Delta] = deque()
        self._error: Exception | None = None
        self._ended = False
        self._news = asyncio.Event()

    def put(self, piece: Delta) -> None:
        """Take in a piece."""
        self._pieces.append(piece)
        self._ended = self._ended or piece.finish is not None
        self._news.set()

    def fail(self, error: Exception) -> None:
        """Take in that there is no more, and why."""
        self._error, self._ended = error, True
        self._news.set()

    def cancel(self) -> None:
        """Want no more of it: its slot is free at the next step."""
        if not self._ended and not self.row.gone:
            self.row.gone = True
            self._on_cancel()

    async def __aiter__(self) -> AsyncIterator[Delta]:
        """The pieces, joined where several came at once.

        Raises:
            TidemillError: The generation failed.
        """
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                if self._pieces:
                    piece = _joined(self._pieces)
                    yield piece
                    if piece.finish:
                        return
                if self._error:
                    raise self._error
        finally:
            self.cancel()

    async def whole(self) -> Delta:
        """All pieces as one; raises as the iteration does."""
        return _joined(deque([piece async for piece in self]))


def _joined(pieces: deque[Delta]) -> Delta:
    """All pieces as one; none are left."""
    taken = [pieces.popleft() for _ in range(len(pieces))]
    text = "".join(piece.text for piece in taken)
    choices = tuple(choice for piece in taken for choice in piece.choices)
    return Delta(text, choices, taken[-1].finish, taken[-1].cached)
