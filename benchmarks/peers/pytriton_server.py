"""PyTriton: C++ Triton in front of a Python callable.

Usage: pytriton_server.py MODEL.onnx NAME HTTP_PORT GRPC_PORT METRICS_PORT
"""

from __future__ import annotations

import sys
from typing import Any

from onnx_model import MAX_BATCH, OnnxModel
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


def main() -> None:
    path, name, http_port, grpc_port, metrics_port = sys.argv[1:]
    model = OnnxModel(path)

    @batch
    def infer(**feed: Any) -> Any:
        return model.run(feed)

    ports = {"http_port": int(http_port), "grpc_port": int(grpc_port), "metrics_port": int(metrics_port)}
    with Triton(config=TritonConfig(**ports, log_verbose=0)) as triton:
        triton.bind(
            model_name=name,
            infer_func=infer,
            inputs=[_tensor(*spec) for spec in model.inputs],
            outputs=[_tensor(*spec) for spec in model.outputs],
            config=ModelConfig(max_batch_size=MAX_BATCH, batcher=DynamicBatcher(max_queue_delay_microseconds=0)),
            strict=False,
        )
        triton.serve()


def _tensor(name: str, dtype: Any, shape: list[int | None]) -> Tensor:
    return Tensor(name=name, dtype=dtype, shape=tuple(-1 if dim is None else dim for dim in shape))


if __name__ == "__main__":
    main()
