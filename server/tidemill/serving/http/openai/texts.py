"""Several texts of one request, made side by side and answered as one: whole or as a stream; knows no sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import orjson

from tidemill.errors import TidemillError
from tidemill.generation.request import Delta, GenerationRequest
from tidemill.generation.stream import Stream
from tidemill.repository.text_model import TextModel
from tidemill.serving.http.openai.failure import error_body
from tidemill.serving.http.openai.written import Head, Usage, Writer

__all__ = ["Texts"]


class Texts:
    """The texts of one request, numbered as its choices."""

    def __init__(self, streams: Sequence[Stream], head: Head, writer: Writer) -> None:
        self._streams = streams
        self._head = head
        self._writer = writer
        self._usage = Usage()
        # Of several texts with one prompt it counts once.
        prompts = {id(stream.row.request.prompt): stream.prompt_tokens for stream in streams}
        self._usage.prompt = sum(prompts.values())

    @classmethod
    async def begin(cls, model: TextModel, wanted: Sequence[GenerationRequest], head: Head, writer: Writer) -> Texts:
        """Have texts made; if one is refused, none is.

        Raises:
            TidemillError: One is refused.
        """
        streams: list[Stream] = []
        try:
            for request in wanted:
                constraint = await asyncio.to_thread(model.constrain, request)
                streams.append(model.generator.submit(request, constraint))
        except BaseException:
            _cancel(streams)
            raise
        return cls(streams, head, writer)

    async def whole(self) -> dict[str, Any]:
        """The answer, once every text is whole.

        Raises:
            TidemillError: A text failed.
        """
        try:
            pieces = [await stream.whole() for stream in self._streams]
        finally:
            _cancel(self._streams)
        for piece in pieces:
            self._count(piece)
        self._usage.cached = max((piece.cached for piece in pieces), default=0)
        choices = [self._writer.choice(index, piece) for index, piece in enumerate(pieces)]
        return self._head.body(self._writer.kind, choices) | {"usage": self._usage.body()}

    async def events(self, *, usage: bool) -> AsyncGenerator[bytes, None]:
        """The chunks as they come, as JSON; the last is an error if a text fails.

        Args:
            usage: Whether the last chunk tells the numbers of tokens.
        """
        rest = {"usage": None} if usage else {}
        try:
            opened = False
            async for index, piece in self._pieces():
                if not opened:
                    for chunk in self._openings():
                        yield orjson.dumps(chunk | rest)
                    opened = True
                self._count(piece)
                self._usage.cached = max(self._usage.cached, piece.cached)
                for choice in self._writer.chunks(index, piece):
                    yield orjson.dumps(self._chunk([choice]) | rest)
            if usage:
                yield orjson.dumps(self._chunk([]) | {"usage": self._usage.body()})
        except TidemillError as error:
            # Once a stream has begun, this is the only way that clients notice.
            yield orjson.dumps(error_body(error)[1])
        finally:
            _cancel(self._streams)

    def _openings(self) -> list[dict[str, Any]]:
        openings = [self._writer.opening(index) for index in range(len(self._streams))]
        return [self._chunk([choice]) for choice in openings if choice]

    def _chunk(self, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return self._head.body(self._writer.chunk_kind, choices)

    def _count(self, piece: Delta) -> None:
        self._usage.made += len(piece.choices)

    async def _pieces(self) -> AsyncIterator[tuple[int, Delta]]:
        """The pieces of all texts in the order in which they come."""
        if len(self._streams) == 1:
            async for piece in self._streams[0]:
                yield 0, piece
            return
        coming: asyncio.Queue[tuple[int, Delta] | Exception] = asyncio.Queue()
        tasks = [asyncio.create_task(_forward(index, stream, coming)) for index, stream in enumerate(self._streams)]
        try:
            left = len(tasks)
            while left:
                item = await coming.get()
                if isinstance(item, Exception):
                    raise item
                yield item
                left -= item[1].finish is not None
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)


async def _forward(index: int, stream: Stream, coming: asyncio.Queue[tuple[int, Delta] | Exception]) -> None:
    try:
        async for piece in stream:
            coming.put_nowait((index, piece))
    except TidemillError as error:
        coming.put_nowait(error)


def _cancel(streams: Sequence[Stream]) -> None:
    for stream in streams:
        stream.cancel()
