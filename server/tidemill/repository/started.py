"""A request that a model has taken: its outputs to come, and the answer made of them; knows no queue."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from tidemill.batching.timed import Timed
from tidemill.protocol.types import Array, InferRequest, InferResponse, Timing

if TYPE_CHECKING:
    from tidemill.repository.served import ServedModel

__all__ = ["Started"]


@dataclass(slots=True)
class Started:
    """One request at its model.

    Attributes:
        served: The model.
        request: What was asked.
        names: The outputs to answer, in order.
        outputs: Every output by name, once the run is over.
    """

    served: ServedModel
    request: InferRequest
    names: Sequence[str]
    outputs: asyncio.Future[Mapping[str, Array]]

    def response(self) -> InferResponse:
        """The answer, once `outputs` is done; raises what the run raised."""
        outputs = self.outputs.result()
        chosen = {name: outputs[name] for name in self.names}
        timing = None
        if _is_timed(outputs):
            timing = Timing(outputs.queue_seconds, outputs.run_seconds, outputs.batch_rows, outputs.record)
        return InferResponse(self.served.name, self.served.version, chosen, self.request.id, timing=timing)


def _is_timed(outputs: Mapping[str, Array]) -> TypeGuard[Timed]:
    """Not what was put together of several runs, or was kept from an earlier one."""
    return isinstance(outputs, Timed)
