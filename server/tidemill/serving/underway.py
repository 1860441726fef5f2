"""One request between its start and its finished answer; knows no wire and does no waiting of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidemill.protocol.types import Array, InferResponse
from tidemill.repository.started import Started
from tidemill.serving.answer import finish
from tidemill.serving.shared_memory import HeldSlice
from tidemill.serving.trace_settings import TraceSettings

__all__ = ["Underway"]


@dataclass(slots=True)
class Underway:
    """What the service has begun.

    Attributes:
        started: The request at its model.
        held: Where outputs go that are not sent.
        traces: Which requests leave a trace.
        clock: Seconds.
        begun: When it began.
    """

    started: Started
    held: Mapping[str, HeldSlice]
    traces: TraceSettings
    clock: Callable[[], float]
    begun: float

    @property
    def outputs(self) -> asyncio.Future[Mapping[str, Array]]:
        """Done when the model has answered or failed; cancelling it ends the work."""
        return self.started.outputs

    def finish(self) -> InferResponse:
        """The answer, once `outputs` is done; raises what the run raised."""
        response = self.started.response()
        request, served = self.started.request, self.started.served
        if self.traces.active:
            self.traces.record(served.name, request.id, self.clock() - self.begun, response.timing)
        if self.held or request.outputs or request.parameters:
            return finish(response, request, self.held, served)
        return response
