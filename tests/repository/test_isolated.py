"""A model in a process of its own, which is really killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reloading import loaded

from tidemill.batching import Cancel
from tidemill.bundle.config import ModelConfig
from tidemill.errors import InferenceFailed, LoadFailed, ModelNotReady, Unavailable, UnprocessableInput
from tidemill.protocol.types import InferRequest
from tidemill.repository import ModelState, Repository, RepositoryControl
from tidemill.repository.isolated import IsolatedInstance
from tidemill.repository.loading import open_instance

WriteModel = Callable[..., Path]
ALONE = {"isolation": "process"}


@pytest.fixture
def opened(all_models: Path) -> Any:
    """Opens models in children of this process, which end with the test."""
    instances: list[IsolatedInstance] = []

    def open_isolated(name: str, **config: Any) -> IsolatedInstance:
        instance = open_instance(all_models / name / "1", ModelConfig(isolation="process", **config))
        assert isinstance(instance, IsolatedInstance)
        instances.append(instance)
        return instance

    yield open_isolated
    for instance in instances:
        instance.close()


@pytest.mark.parametrize(
    ("name", "x"),
    [
        ("identity", np.float32([[1, 2, 3], [4, 5, 6]])),
        ("strings", np.array([b"a\0b", b"", "é".encode()], object)),
        ("negate", np.array(2.5, np.float32)),
        ("gather", np.arange(4)),
    ],
)
def test_it_answers_as_if_it_ran_here(opened: Any, all_models: Path, name: str, x: Any) -> None:
    here, there = open_instance(all_models / name / "1", ModelConfig()), opened(name)
    assert (there.inputs, there.outputs, there.providers) == (here.inputs, here.outputs, here.providers)
    assert there.placement == here.placement
    for given in [x, x[:0]] if x.ndim else [x]:
        expected, found = here.run({"x": given})["y"], there.run({"x": given})["y"]
        assert (found.dtype, found.shape, found.tolist()) == (expected.dtype, expected.shape, expected.tolist())


def test_what_the_model_refuses_is_told_and_the_child_goes_on(opened: Any) -> None:
    instance = opened("gather")
    with pytest.raises(UnprocessableInput, match="idx=4"):
        instance.run({"x": np.array([4])})
    assert instance.run({"x": np.array([3])})["y"].tolist() == [40]


def test_a_run_can_be_ended_early(opened: Any) -> None:
    cancel = Cancel()
    cancel.set()
    instance = opened("slow")
    with pytest.raises(InferenceFailed, match="terminate"):
        instance.run({"x": np.full((1, 1), 1e6, np.float32)}, cancel)
    assert instance.run({"x": np.ones((1, 1), np.float32)})["y"].item() == 1


def test_what_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(LoadFailed, match=r"model\.onnx is no ONNX model"):
        IsolatedInstance(tmp_path, ModelConfig())


def test_the_end_of_the_child_is_told_and_every_later_run_fails(opened: Any) -> None:
    instance = opened("slow")
    reasons: list[str] = []
    instance.watch(reasons.append)
    os.kill(instance.pid, signal.SIGKILL)
    with pytest.raises(Unavailable, match="SIGKILL"):
        instance.run({"x": np.full((1, 1), 1e6, np.float32)})
    with pytest.raises(Unavailable, match="SIGKILL"):
        instance.run({"x": np.ones((1, 1), np.float32)})
    with pytest.raises(LoadFailed, match="SIGKILL"):
        instance.watch(reasons.append)
    assert len(reasons) == 1


def test_a_closed_model_leaves_no_process(opened: Any) -> None:
    instance = opened("two")
    instance.close()
    with pytest.raises(ProcessLookupError):
        os.kill(instance.pid, 0)
    with pytest.raises(Unavailable, match="unloaded"):
        instance.run({"x": np.ones((1, 2), np.float32)})


async def infer(repository: Repository, name: str, x: Any) -> float:
    return float((await repository.get(name).infer(InferRequest(name, {"x": x}))).outputs["y"].item())


async def test_a_killed_model_fails_only_its_own_requests_and_comes_back(write_model: WriteModel) -> None:
    write_model("slow", config=ALONE)
    root = write_model("value", "v", k=3)
    repository = await loaded(root, control=RepositoryControl(restart_seconds=0.01))
    killed = repository.get("slow")
    running = [asyncio.ensure_future(infer(repository, "slow", np.full((1, 1), 1e6, np.float32))) for _ in range(3)]
    assert await infer(repository, "v", np.ones((1, 1), np.float32)) == 3
    os.kill(killed.running.instance.pid, signal.SIGKILL)
    for request in running:
        with pytest.raises(Unavailable, match="SIGKILL"):
            await request
    assert await infer(repository, "v", np.ones((1, 1), np.float32)) == 3
    async with asyncio.timeout(30):
        while killed.state is ModelState.READY:
            await asyncio.sleep(0)
        with pytest.raises(ModelNotReady, match="SIGKILL"):
            await infer(repository, "slow", np.ones((1, 1), np.float32))
        while not repository.ready_versions("slow"):
            await asyncio.sleep(0)
    assert repository.get("slow") is not killed
    assert await infer(repository, "slow", np.ones((1, 1), np.float32)) == 1
    repository.close()
