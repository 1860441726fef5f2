"""C++ Triton (out of the wheel of PyTriton) with one model, `double`: x FP32 -> y, twice x.

Usage: triton_server.py HTTP_PORT GRPC_PORT.
"""

from __future__ import annotations

import sys

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


@batch
def double(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"y": x * 2}


if __name__ == "__main__":
    config = TritonConfig(
        http_port=int(sys.argv[1]), grpc_port=int(sys.argv[2]), http_address="127.0.0.1", allow_metrics=False
    )
    with Triton(config=config) as triton:
        x, y = (Tensor(name=name, dtype=np.float32, shape=(3,)) for name in "xy")
        triton.bind("double", infer_func=double, inputs=[x], outputs=[y], config=ModelConfig(max_batch_size=8))
        triton.serve()
