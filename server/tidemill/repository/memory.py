"""The answers that a model has given, by request; knows neither where they are kept nor how a model is run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tidemill.protocol.types import InferRequest
from tidemill.repository.cache_key import request_key
from tidemill.repository.response_cache import Note, Outputs, ResponseCache
from tidemill.repository.running import RunningModel

__all__ = ["Memory"]


@dataclass(frozen=True, slots=True)
class Memory:
    """What stands between a model's requests and its runs.

    Attributes:
        cache: Where answers are kept.
        model: The digest of everything of the model that they follow from.
        note: Told of each request whether its answer was found, and how many seconds that took.
    """

    cache: ResponseCache
    model: bytes
    note: Note

    def answer(
        self,
        request: InferRequest,
        names: Sequence[str],
        run: Callable[[], asyncio.Future[Outputs]],
        running: RunningModel,
    ) -> asyncio.Future[Outputs]:
        """The answer to a request, from memory or from a run.

        Args:
            request: The request; it was checked.
            names: The outputs that are answered.
            run: Has the model run.
            running: The model, which is not let go meanwhile.
        """

        async def chosen() -> Outputs:
            outputs = await run()
            return {name: outputs[name] for name in names}

        held = ExitStack()
        held.enter_context(running.held())
        key = request_key(self.model, request, names)
        try:
            outputs = self.cache.answer(key, lambda: asyncio.ensure_future(chosen()), self.note)
        except BaseException:
            held.close()
            raise
        outputs.add_done_callback(lambda _: held.close())
        return outputs
