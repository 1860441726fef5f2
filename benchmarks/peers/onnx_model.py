"""What every peer's handler needs: the session as all have it, and a batch run as one where shapes allow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

_NUMPY = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
MAX_BATCH = 32


class OnnxModel:
    """One session on one thread.

    Attributes:
        inputs: Name, numpy dtype and shape (None for free dims, the batch left out) of each input.
        outputs: Likewise.
    """

    def __init__(self, path: str) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = [_spec(it) for it in self._session.get_inputs()]
        self.outputs = [_spec(it) for it in self._session.get_outputs()]

    def run(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays by output name."""
        names = [name for name, _, _ in self.outputs]
        return dict(zip(names, self._session.run(names, dict(feed)), strict=True))

    def run_all(self, feeds: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """One run where all shapes are equal, else one a feed: what a handler written by hand would do."""
        shapes = {tuple(array.shape for array in feed.values()) for feed in feeds}
        if len(feeds) == 1 or len(shapes) > 1:
            return [self.run(feed) for feed in feeds]
        joined = self.run({name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]})
        rows = len(next(iter(feeds[0].values())))
        return [
            {name: array[at * rows : (at + 1) * rows] for name, array in joined.items()} for at in range(len(feeds))
        ]

    def from_raw(self, body: bytes) -> dict[str, Any]:
        """Inputs whose bytes follow each other; several are of one size, and one free dim takes what is left."""
        size = len(body) // len(self.inputs)
        parts = [body[at * size : (at + 1) * size] for at in range(len(self.inputs))]
        return {
            name: np.frombuffer(part, dtype).reshape([1, *(-1 if dim is None else dim for dim in shape)])
            for part, (name, dtype, shape) in zip(parts, self.inputs, strict=True)
        }

    def from_json(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs of the Open Inference Protocol's JSON."""
        dtypes = {name: dtype for name, dtype, _ in self.inputs}
        return {
            item["name"]: np.array(item["data"], dtypes[item["name"]]).reshape(item["shape"])
            for item in document["inputs"]
        }

    def to_json(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs of the Open Inference Protocol's JSON."""
        outputs = [
            {"name": name, "datatype": "FP32", "shape": list(array.shape), "data": array.ravel().tolist()}
            for name, array in answer.items()
        ]
        return {"model_name": "model", "outputs": outputs}


def _spec(item: Any) -> tuple[str, Any, list[int | None]]:
    return item.name, _NUMPY[item.type], [dim if isinstance(dim, int) else None for dim in item.shape[1:]]


def wire_dtype(dtype: Any) -> str:
    """The protocol's name of a numpy dtype."""
    return {np.float32: "FP32", np.int64: "INT64"}[dtype]
