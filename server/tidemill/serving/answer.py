"""A model's answer made ready: classes named, outputs placed in shared memory, timings told; knows no wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidemill.protocol.classification import classify
from tidemill.protocol.types import Array, InferRequest, InferResponse, Parameter, Timing
from tidemill.repository.served import ServedModel
from tidemill.serving.shared_memory import HeldSlice

__all__ = ["TIMING", "finish"]

TIMING = "tidemill_timing"


def finish(
    response: InferResponse, request: InferRequest, held: Mapping[str, HeldSlice], served: ServedModel
) -> InferResponse:
    """The response as it was asked for.

    Args:
        response: As the model gave it.
        request: What was asked.
        held: Where outputs go that are not sent.
        served: The model that answered.

    Raises:
        InvalidArgument: An output cannot be classified, or does not fit its place in shared memory.
    """
    counts = {output.name: output.classification for output in request.outputs if output.classification}
    if counts:
        response = replace(response, outputs=_classified(response.outputs, counts, served))
    if held:
        regions = {name: place.write(response.outputs[name], name) for name, place in held.items()}
        response = replace(response, regions=regions)
    if response.timing and request.parameters.get(TIMING):
        response = replace(response, parameters={**response.parameters, **_told(response.timing)})
    return response


def _classified(outputs: Mapping[str, Array], counts: Mapping[str, int], served: ServedModel) -> dict[str, Array]:
    batched = served.config()["max_batch_size"] > 0
    answered = dict(outputs)
    for name, count in counts.items():
        labels = served.labels.get(name, ())
        answered[name] = classify(outputs[name], count, batched=batched, labels=labels, name=f"output {name!r}")
    return answered


def _told(timing: Timing) -> dict[str, Parameter]:
    return {
        "queue_us": round(timing.queue_seconds * 1e6),
        "infer_us": round(timing.run_seconds * 1e6),
        "batch_size": timing.batch_rows,
    }
