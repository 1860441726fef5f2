"""What people write by hand: FastAPI, a pydantic body, numpy, one run a request.

Usage: fastapi_server.py MODEL.onnx NAME PORT
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from onnx_model import OnnxModel
from pydantic import BaseModel


class Tensor(BaseModel):
    name: str
    shape: list[int]
    datatype: str
    data: list[float] | list[int]


class Request(BaseModel):
    inputs: list[Tensor]
    outputs: list[dict[str, Any]] = []


def main() -> None:
    path, name, port = sys.argv[1:]
    model, app = OnnxModel(path), FastAPI()

    @app.post(f"/v2/models/{name}/infer")
    def infer(request: Request) -> dict[str, Any]:
        return model.to_json(model.run(model.from_json(request.model_dump())))

    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
