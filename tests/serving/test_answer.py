from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tidemill.protocol import InferRequest, InferResponse, RequestedOutput, Timing
from tidemill.serving.answer import TIMING, finish

X = np.float32([[1, 3, 2]])


async def test_what_was_asked_for_is_done(write_model: Any, start_server: Any) -> None:
    repository: Path = write_model("identity", config={"labels": {"y": "labels.txt"}})
    (repository / "identity" / "labels.txt").write_text("cat\ndog\n", encoding="utf-8")
    server = await start_server(repository)
    request = InferRequest("identity", {"x": X}, outputs=(RequestedOutput("y", classification=2),))
    response = await server.service.infer(request)
    assert response.outputs["y"].tolist() == [[b"3.000000:1:dog", b"2.000000:2"]]


async def test_timings_are_told_to_those_who_ask(write_model: Any, start_server: Any) -> None:
    server = await start_server(write_model("identity"))
    served = server.service._repository.get("identity")
    response = InferResponse("identity", "1", {"y": X}, timing=Timing(0.001, 0.002, 8))
    for asked, told in ((False, {}), (True, {"queue_us": 1000, "infer_us": 2000, "batch_size": 8})):
        request = InferRequest("identity", {"x": X}, parameters={TIMING: asked})
        assert finish(response, request, {}, served).parameters == told
