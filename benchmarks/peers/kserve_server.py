"""KServe's Python server.

Usage: kserve_server.py MODEL.onnx NAME HTTP_PORT GRPC_PORT
"""

from __future__ import annotations

import sys
from typing import Any

from kserve import InferOutput, InferResponse, Model, ModelServer
from onnx_model import OnnxModel


class Served(Model):
    def __init__(self, name: str, path: str) -> None:
        super().__init__(name)
        self.model = OnnxModel(path)
        self.ready = True

    def load(self) -> bool:
        return True

    async def predict(self, payload: Any, *_: Any, **__: Any) -> Any:
        answer = self.model.run({item.name: item.as_numpy() for item in payload.inputs})
        outputs = []
        wanted = payload.request_outputs or []
        binary = payload.from_grpc or any((it.parameters or {}).get("binary_data") for it in wanted)
        for name, array in answer.items():
            outputs.append(InferOutput(name=name, shape=list(array.shape), datatype="FP32"))
            outputs[-1].set_data_from_numpy(array, binary_data=binary)
        return InferResponse(
            response_id=payload.id or "0", model_name=self.name, infer_outputs=outputs, from_grpc=payload.from_grpc
        )


def main() -> None:
    path, name, http_port, grpc_port = sys.argv[1:]
    server = ModelServer(
        http_port=int(http_port),
        grpc_port=int(grpc_port),
        workers=1,
        access_log_format=None,
        enable_latency_logging=False,
    )
    server.start([Served(name, path)])


if __name__ == "__main__":
    main()
