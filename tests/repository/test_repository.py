from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tidemill.dtype import DType
from tidemill.errors import (
    InvalidArgument,
    ModelNotFound,
    ModelNotReady,
    QueueFull,
    ShuttingDown,
    UnprocessableInput,
    VersionNotFound,
)
from tidemill.protocol.types import Array, InferRequest, RequestedOutput
from tidemill.repository import Events, ModelState, Repository

WriteModel = Callable[..., Path]


def f32(*values: float, shape: tuple[int, ...]) -> Array:
    return np.array(values, np.float32).reshape(shape)


async def infer(repository: Repository, model: str, x: Array, *, version: str = "", outputs: tuple[str, ...] = ()):
    request = InferRequest(model, {"x": x}, version, outputs=tuple(map(RequestedOutput, outputs)))
    return await repository.get(model, version).infer(request)


async def loaded(*paths: Path) -> Repository:
    repository = Repository.open(paths)
    await repository.load_all()
    return repository


async def test_states_are_passed_in_order(write_model: WriteModel) -> None:
    seen: list[ModelState] = []
    repository = Repository.open([write_model("two")], Events(on_state=lambda served: seen.append(served.state)))
    with pytest.raises(ModelNotReady, match="'two' version 1 is LOADING"):
        repository.get("two")
    await repository.load_all()
    repository.close()
    assert seen == [ModelState.LOADING, ModelState.WARMING, ModelState.READY, ModelState.UNAVAILABLE]


async def test_outputs_are_those_asked_for_in_that_order(write_model: WriteModel) -> None:
    repository = await loaded(write_model("two"))
    x = f32(1, 2, shape=(1, 2))
    everything = await infer(repository, "two", x)
    assert list(everything.outputs) == ["y", "z"]
    some = await infer(repository, "two", x, outputs=("z",))
    assert list(some.outputs) == ["z"]
    np.testing.assert_array_equal(some.outputs["z"], [[2, 4]])
    with pytest.raises(InvalidArgument, match="unknown output 'w'"):
        await infer(repository, "two", x, outputs=("w",))
    repository.close()


async def test_the_newest_ready_version_is_the_default(write_model: WriteModel) -> None:
    for version in (1, 2, 10):
        root = write_model("value", "v", version=version, k=version, config={"version_policy": {"all": True}})
    (root / "v" / "11").mkdir()
    (root / "v" / "11" / "bundle.json").write_text("{}")
    repository = await loaded(root)
    x = f32(0, shape=(1, 1))
    assert (await infer(repository, "v", x)).model_version == "10"
    assert (await infer(repository, "v", x, version="2")).outputs["y"] == [[2.0]]
    assert repository.ready_versions("v") == ("1", "2", "10")
    with pytest.raises(ModelNotReady, match="version 11 is FAILED"):
        repository.get("v", "11")
    with pytest.raises(VersionNotFound, match="no version '02'; it has 11, 10, 2, 1"):
        repository.get("v", "02")
    repository.close()


async def test_a_broken_model_disturbs_no_other_and_says_why(write_model: WriteModel) -> None:
    root = write_model("two")
    (root / "bad" / "1").mkdir(parents=True)
    (root / "bad" / "1" / "model.onnx").write_bytes(b"no onnx")
    repository = await loaded(root)
    assert repository.get("two").state is ModelState.READY
    bad = repository.find("bad")
    assert bad.state is ModelState.FAILED
    assert "model.onnx" in bad.reason
    assert "bad" in repository.not_ready_reason()
    index = {entry.name: entry for entry in repository.index()}
    assert (index["two"].state, index["bad"].state, index["bad"].reason) == ("READY", "UNAVAILABLE", bad.reason)
    repository.close()


async def test_older_versions_stand_in_for_a_broken_one(write_model: WriteModel) -> None:
    for version in (1, 2):
        root = write_model("value", "v", version=version, k=version)
    (root / "v" / "3").mkdir()
    (root / "v" / "3" / "bundle.json").write_text("{}")
    repository = await loaded(root)
    assert repository.ready_versions("v") == ("2",)
    assert repository.not_ready_reason() == ""
    assert [(entry.version, entry.state) for entry in repository.index()] == [("3", "UNAVAILABLE"), ("2", "READY")]
    repository.close()


async def test_unknown_models_are_refused_with_a_suggestion(write_model: WriteModel) -> None:
    repository = Repository.open([write_model("two")])
    with pytest.raises(ModelNotFound, match=r"unknown model 'tow'; did you mean 'two'\?"):
        repository.get("tow")
    with pytest.raises(ModelNotFound, match="served are two"):
        repository.get("../etc/passwd")


async def test_an_empty_repository_is_not_ready(tmp_path: Path) -> None:
    assert (await loaded(tmp_path)).not_ready_reason() == "there are no models to serve"


async def test_only_models_whose_rows_are_independent_are_batched(write_model: WriteModel) -> None:
    write_model("mean")
    write_model("negate")
    write_model("gather", "single", config={"max_batch_size": 0})
    repository = await loaded(write_model("two"))
    proofs = {name: repository.get(name).running.plan.proof for name in repository.names()}
    assert [name for name, proof in proofs.items() if proof.batchable] == ["two"]
    assert "depends on the other rows" in proofs["mean"].reason
    scalar = await infer(repository, "negate", np.array(2.5, np.float32))
    assert scalar.outputs["y"].shape == ()
    answers = await asyncio.gather(*(infer(repository, "mean", f32(0, i, 2, i, shape=(2, 2))) for i in range(8)))
    for answer in answers:
        np.testing.assert_array_equal(answer.outputs["y"], [[-1, 0], [1, 0]])
    repository.close()


async def test_a_bad_row_fails_alone(write_model: WriteModel) -> None:
    repository = await loaded(write_model("gather"))
    indices = [0, 1, 2, 4, 3, 0]
    answers = await asyncio.gather(
        *(infer(repository, "gather", np.array([i], np.int64)) for i in indices), return_exceptions=True
    )
    for index, answer in zip(indices, answers, strict=True):
        if index == 4:
            assert isinstance(answer, UnprocessableInput)
        else:
            assert not isinstance(answer, BaseException)
            np.testing.assert_array_equal(answer.outputs["y"], [10.0 * (index + 1)])
    repository.close()


async def test_a_limit_that_nobody_set_refuses_no_request(write_model: WriteModel) -> None:
    write_model("two", "limited", config={"max_batch_size": 4})
    repository = await loaded(write_model("two"))
    x = np.arange(142, dtype=np.float32).reshape(71, 2)
    for answer in await asyncio.gather(*(infer(repository, "two", x) for _ in range(3))):
        np.testing.assert_array_equal(answer.outputs["z"], 2 * x)
    with pytest.raises(InvalidArgument, match="71 rows, the model takes at most 4"):
        await infer(repository, "limited", x)
    repository.close()


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype is not DType.string and "fnuz" not in dtype.value])
async def test_every_element_type_passes_unchanged(write_model: WriteModel, dtype: DType) -> None:
    repository = await loaded(write_model("identity", dtype=dtype))
    x = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype.to_numpy())
    for rows in (x, x[:0]):
        y = (await infer(repository, "identity", rows)).outputs["y"]
        assert (y.dtype, y.shape, y.tobytes()) == (rows.dtype, rows.shape, rows.tobytes())
    repository.close()


async def test_a_full_queue_refuses_and_closing_fails_what_waits(write_model: WriteModel) -> None:
    options = {"max_batch_size": 0, "batching": {"max_queue_size": 2}}
    repository = await loaded(write_model("slow", config=options))
    running = [asyncio.ensure_future(infer(repository, "slow", f32(1_000, shape=(1, 1))))]
    await asyncio.sleep(0)  # a turn for the request to be queued, and one for it to be taken
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running += [asyncio.ensure_future(infer(repository, "slow", f32(0, shape=(1, 1)))) for _ in range(3)]
    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    assert [type(task.exception()) for task in done] == [QueueFull]
    assert repository.get("slow").queued == 2
    repository.close()
    results = await asyncio.gather(*running, return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == [
        "InferResponse",
        "QueueFull",
        ShuttingDown.__name__,
        ShuttingDown.__name__,
    ]


async def test_draining_answers_what_was_taken(write_model: WriteModel) -> None:
    repository = await loaded(write_model("slow", config={"max_batch_size": 0}))
    tasks = [asyncio.ensure_future(infer(repository, "slow", f32(i, shape=(1, 1)))) for i in range(5)]
    await asyncio.sleep(0)
    await repository.drain()
    assert [task.result().outputs["y"].item() for task in tasks] == [0, 1, 2, 3, 4]
    with pytest.raises(ModelNotReady, match="DRAINING"):
        repository.get("slow")
    repository.close()
