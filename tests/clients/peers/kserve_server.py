"""KServe's Python server with one model, `double`: x FP32 -> y, twice x.

Usage: kserve_server.py HTTP_PORT GRPC_PORT
"""

from __future__ import annotations

import sys
from typing import Any

from kserve import InferOutput, InferResponse, Model, ModelServer


class Double(Model):
    def __init__(self) -> None:
        super().__init__("double")
        self.ready = True

    def load(self) -> bool:
        return True

    async def predict(self, payload: Any, *_: Any, **__: Any) -> Any:
        array = payload.inputs[0].as_numpy() * 2
        output = InferOutput(name="y", shape=list(array.shape), datatype="FP32")
        output.set_data_from_numpy(array, binary_data=payload.from_grpc)
        return InferResponse(payload.id or "0", self.name, [output], from_grpc=payload.from_grpc)


if __name__ == "__main__":
    ModelServer(http_port=int(sys.argv[1]), grpc_port=int(sys.argv[2]), workers=1).start([Double()])
