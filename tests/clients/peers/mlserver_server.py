"""MLServer with one model, `double`: x FP32 -> y, twice x. Usage: mlserver_server.py HTTP_PORT GRPC_PORT."""

from __future__ import annotations

import asyncio
import sys

from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.settings import ModelParameters
from mlserver.types import InferenceRequest, InferenceResponse, MetadataTensor


class Double(MLModel):
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        y = NumpyCodec.encode_output("y", NumpyCodec.decode_input(payload.inputs[0]) * 2)
        return InferenceResponse(model_name=self.name, model_version="1", id=payload.id, outputs=[y])


async def main() -> None:
    http_port, grpc_port = map(int, sys.argv[1:])
    settings = Settings(http_port=http_port, grpc_port=grpc_port, host="127.0.0.1", parallel_workers=0, metrics_port=0)
    settings.metrics_endpoint = None
    specs = {
        name: [MetadataTensor(name=tensor, datatype="FP32", shape=[-1, 3])]
        for name, tensor in (("inputs", "x"), ("outputs", "y"))
    }
    model = ModelSettings(name="double", implementation=Double, parameters=ModelParameters(version="1"), **specs)
    await MLServer(settings).start([model])


if __name__ == "__main__":
    asyncio.run(main())
