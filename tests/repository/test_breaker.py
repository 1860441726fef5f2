from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tidemill.batching import BatchRecord
from tidemill.errors import InferenceFailed, ModelNotReady
from tidemill.protocol.types import InferRequest
from tidemill.repository import ModelState, Repository, RepositoryControl
from tidemill.repository.breaker import break_after

GOOD = BatchRecord(2, (0.0, 0.0), 0.1, failures=0)
HALF = BatchRecord(2, (0.0, 0.0), 0.1, failures=1, broken=1, fault="half")
BROKEN = BatchRecord(2, (0.0, 0.0), 0.1, failures=2, broken=2, fault="device lost")
REFUSED = BatchRecord(2, (0.0, 0.0), 0.1, failures=2)


@pytest.mark.parametrize(
    ("records", "breaks"),
    [
        ([BROKEN] * 3, 1),
        ([BROKEN] * 9, 1),
        ([BROKEN, BROKEN, GOOD, BROKEN, BROKEN], 0),
        ([BROKEN, BROKEN, HALF, BROKEN, BROKEN], 0),
        ([BROKEN, BROKEN, REFUSED, BROKEN], 1),
        ([REFUSED] * 9, 0),
    ],
)
def test_only_failures_in_a_row_that_nobody_is_to_blame_for_count(records: list[BatchRecord], breaks: int) -> None:
    reasons: list[str] = []
    seen: list[BatchRecord] = []
    observe = break_after(reasons.append, seen.append, runs=3)
    for record in records:
        observe(record)
    assert seen == records
    assert reasons == ["3 runs in a row failed, the last with: device lost"] * breaks


def write_hungry(folder: Path) -> Path:
    """A model that takes as much memory as its input says."""
    nodes = [
        helper.make_node("ConstantOfShape", ["x"], ["zeros"]),
        helper.make_node("Cos", ["zeros"], ["ones"]),
        helper.make_node("ReduceMax", ["ones"], ["y"], keepdims=0),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.INT64, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [])
    model = helper.make_model(
        helper.make_graph(nodes, "hungry", [x], [y]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    return folder


async def test_a_broken_model_is_taken_out_of_service_and_comes_back(tmp_path: Path) -> None:
    write_hungry(tmp_path / "hungry" / "1")
    repository = Repository.open([tmp_path], control=RepositoryControl(restart_seconds=0.01))
    await repository.load_all()
    broken = repository.get("hungry")

    async def take(count: int) -> float:
        request = InferRequest("hungry", {"x": np.array([count], np.int64)})
        return float((await repository.get("hungry").infer(request)).outputs["y"])

    for _ in range(5):
        with pytest.raises(InferenceFailed, match="alloc"):
            await take(1 << 50)
    assert broken.state is not ModelState.READY
    with pytest.raises(ModelNotReady, match="5 runs in a row failed"):
        await take(1)

    while not repository.ready_versions("hungry"):
        await asyncio.sleep(0)
    assert await take(1) == 1
    assert repository.get("hungry") is not broken
    repository.close()
