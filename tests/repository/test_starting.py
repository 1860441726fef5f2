from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format

from tidemill.errors import DeadlineExceeded, InvalidArgument, QueueFull
from tidemill.protocol.messages import message_class
from tidemill.protocol.types import InferRequest
from tidemill.repository import Repository
from tidemill.repository.served import ServedModel

WriteModel = Callable[..., Path]


async def serve(root: Path) -> Repository:
    repository = Repository.open([root])
    await repository.load_all()
    return repository


def slow(turns: float, **parameters: Any) -> InferRequest:
    return InferRequest("slow", {"x": np.full((1, 1), turns, np.float32)}, parameters=parameters)


async def test_a_model_is_batched_by_measured_cost(write_model: WriteModel) -> None:
    repository = await serve(write_model("slow", config={"batching": {"policy": "cost"}}))
    plan = repository.get("slow").running.plan
    parameters = repository.get("slow").config()["parameters"]

    assert plan.costs is not None
    assert 0 < plan.costs.seconds(1) < plan.costs.seconds(128)
    assert 4 <= plan.options.max_batch_size <= 128
    assert parameters["tidemill.policy"] == {"string_value": "cost"}
    assert "1x0" in parameters["tidemill.run_milliseconds"]["string_value"]
    answers = await asyncio.gather(*(repository.get("slow").infer(slow(turn)) for turn in range(4)))
    assert [float(answer.outputs["y"].item()) for answer in answers] == [0, 1, 2, 3]
    repository.close()


@pytest.mark.parametrize(
    ("config", "costs"),
    [({}, False), ({"batching": {"preferred_batch_size": [4]}}, False), ({"batching": {"policy": "fixed"}}, False)],
)
async def test_a_quick_model_or_one_of_fixed_sizes_has_no_costs(
    write_model: WriteModel, config: dict[str, Any], costs: bool
) -> None:
    repository = await serve(write_model("two", config=config))
    assert (repository.get("two").running.plan.costs is not None) is costs
    repository.close()


async def first_running(served: ServedModel, request: InferRequest) -> asyncio.Task[Any]:
    """Sends a request and returns when it has left the queue."""
    task = asyncio.ensure_future(served.infer(request))
    while not served.queued:
        await asyncio.sleep(0)
    while served.queued:
        await asyncio.sleep(0)
    return task


async def test_priority_and_timeout_are_parameters_of_a_request(write_model: WriteModel) -> None:
    batching = {"priority_levels": 2, "default_priority_level": 2, "priorities": {2: {"max_queue_size": 2}}}
    served = (await serve(write_model("slow", config={"max_batch_size": 1, "batching": batching}))).get("slow")
    done: list[str] = []

    def send(name: str, **parameters: Any) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(served.infer(slow(1, **parameters)))
        task.add_done_callback(lambda _: done.append(name))
        return task

    first = await first_running(served, slow(300))
    tasks = [send("late"), send("urgent", priority=1), send("patient", priority=0, timeout=0)]
    await asyncio.sleep(0)
    with pytest.raises(QueueFull):
        await served.infer(slow(1, priority=2))
    with pytest.raises(DeadlineExceeded):
        await served.infer(slow(1, priority=1, timeout=1000))
    await asyncio.gather(first, *tasks)

    assert done == ["urgent", "late", "patient"]
    served.close()


@pytest.mark.parametrize("parameters", [{"priority": -1}, {"priority": "high"}, {"timeout": True}, {"timeout": 0.5}])
async def test_parameters_that_make_no_sense_are_refused(write_model: WriteModel, parameters: dict[str, Any]) -> None:
    served = (await serve(write_model("slow"))).get("slow")
    with pytest.raises(InvalidArgument, match="expected a whole number of 0 or more"):
        await served.infer(slow(1, **parameters))
    served.close()


async def test_a_run_is_ended_when_its_caller_is_gone(write_model: WriteModel) -> None:
    served = (await serve(write_model("slow"))).get("slow")
    loop = asyncio.get_running_loop()
    task = await first_running(served, slow(1e6))  # some minutes

    started = loop.time()
    task.cancel()
    await served.drain()

    assert loop.time() - started < 1
    served.close()


async def test_the_configuration_is_one_of_tritons(all_models: Path) -> None:
    repository = await serve(all_models)
    for name in repository.names():
        config = repository.get(name).config()
        message = json_format.ParseDict(config, message_class("ModelConfig")())
        assert (message.name, message.backend) == (name, "onnxruntime")
    two = repository.get("two").config()
    assert [(tensor["name"], tensor["data_type"], tensor["dims"]) for tensor in two["output"]] == [
        ("y", "TYPE_FP32", [2]),
        ("z", "TYPE_FP32", [2]),
    ]
    assert two["version_policy"] == {"latest": {"num_versions": 1}}
    mean = repository.get("mean").config()
    assert (mean["max_batch_size"], mean["input"][0]["dims"]) == (0, [-1, 2])
    assert "dynamic_batching" not in mean
    assert repository.get("strings").config()["input"][0]["data_type"] == "TYPE_STRING"
    repository.close()


async def test_labels_are_read_from_beside_the_configuration(write_model: WriteModel) -> None:
    root = write_model("two", config={"labels": {"y": "y.txt"}})
    (root / "two" / "y.txt").write_text("cat\ndog\n")
    repository = await serve(root)
    assert repository.get("two").labels == {"y": ("cat", "dog")}
    repository.close()


@pytest.mark.parametrize(
    ("labels", "fault"),
    [
        ({"w": "y.txt"}, "no output 'w'; it has y, z"),
        ({"y": "none.txt"}, "cannot read 'none.txt'"),
        ({"y": "../../secret.txt"}, "leads out of the model's folder"),
    ],
)
async def test_labels_that_cannot_be_read_are_a_fault(
    write_model: WriteModel, labels: dict[str, str], fault: str
) -> None:
    repository = await serve(write_model("two", config={"labels": labels}))
    assert fault in repository.find("two").reason
