from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tidemill.bundle.config import ModelConfig
from tidemill.errors import ConfigError
from tidemill.protocol.types import InferRequest
from tidemill.repository import Repository
from tidemill.repository.triton_config import load_triton_config, read_triton_config

WriteModel = Callable[..., Path]

WHOLE = """
name: "resnet"
platform: "onnxruntime_onnx"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 224, 224 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1000 ] label_filename: "labels.txt" } ]
version_policy: { specific { versions: [ 1, 3 ] } }
instance_group [ { count: 2 kind: KIND_CPU }, { kind: KIND_CPU } ]
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 500
  priority_levels: 2
  default_priority_level: 2
  default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 9000 max_queue_size: 7 }
  priority_queue_policy { key: 1 value { allow_timeout_override: true } }
}
parameters { key: "intra_op_thread_count" value { string_value: "3" } }
"""


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], ModelConfig]:
    def read(text: str) -> ModelConfig:
        path = tmp_path / "resnet" / "config.pbtxt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return load_triton_config(path)

    return read


def test_what_has_a_meaning_is_taken_over(read: Callable[[str], ModelConfig], caplog: pytest.LogCaptureFixture) -> None:
    config = read(WHOLE)
    batching = config.batching
    assert (config.max_batch_size, config.instances, config.threads) == (8, 3, 3)
    assert config.version_policy.specific == (1, 3)
    assert config.labels == {"y": "labels.txt"}
    assert (batching.policy, batching.preferred_batch_size, batching.max_queue_delay_microseconds) == (
        "fixed",
        (4, 8),
        500,
    )
    assert (batching.timeout_action, batching.default_timeout_microseconds, batching.max_queue_size) == (
        "delay",
        9000,
        7,
    )
    assert (batching.priority_levels, batching.default_priority_level) == (2, 2)
    assert batching.priorities[1].allow_timeout_override
    assert not batching.allow_timeout_override
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("", "max_batch_size", 0),
        ("version_policy { all {} }", "version_policy.all", True),
        ("version_policy { latest { num_versions: 4 } }", "version_policy.latest", 4),
        ("instance_group [ { kind: KIND_GPU count: 2 } ]", "providers", ("cuda",)),
        ("optimization { execution_accelerators { gpu_execution_accelerator { name: 'tensorrt' } } }", "providers",
         ("tensorrt", "cuda")),
        ("optimization { execution_accelerators { gpu_execution_accelerator { name: 'tensorrt' parameters "
         "{ key: 'precision_mode' value: 'FP16' } } } }", "provider_options", {"tensorrt": {"trt_fp16_enable": True}}),
        ("dynamic_batching { preserve_ordering: true }", "batching.preserve_ordering", True),
    ],
)  # fmt: skip
def test_fields_one_by_one(read: Callable[[str], ModelConfig], text: str, field: str, value: object) -> None:
    found: object = read(text)
    for step in field.split("."):
        found = getattr(found, step)
    assert found == value


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("response_cache { enable: true }", ["response_cache"]),
        ("metric_tags { key: 'a' value: 'b' } model_warmup { name: 'w' }", ["metric_tags", "model_warmup"]),
        ("instance_group [ { gpus: [ 0 ] rate_limiter { priority: 1 } } ]", ["instance_group.gpus", "rate_limiter"]),
        ("optimization { graph { level: 1 } input_pinned_memory { enable: true } }", ["graph", "input_pinned_memory"]),
        ("optimization { execution_accelerators { cpu_execution_accelerator { name: 'openvino' } } }", ["openvino"]),
        ("parameters { key: 'execution_mode' value { string_value: '1' } }", ["parameters.execution_mode"]),
        ("from_tomorrow { x: 1 } max_batch_size: 0", ["from_tomorrow"]),
    ],
)
def test_what_has_no_meaning_is_named_once(
    read: Callable[[str], ModelConfig], caplog: pytest.LogCaptureFixture, text: str, named: list[str]
) -> None:
    caplog.set_level(logging.WARNING)
    read(text)
    assert len(caplog.records) == 1
    for name in named:
        assert name in caplog.text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("name: 'other'", "expected that of its folder, 'resnet'"),
        ("max_batch_size: [", "is no model configuration"),
        ("backend: 'python'", "the model is for 'python'; only ONNX"),
        ("platform: 'tensorrt_plan'", "the model is for 'tensorrt_plan'"),
        ("sequence_batching { }", "sequence_batching is not offered"),
        ("ensemble_scheduling { }", "ensemble_scheduling is not offered"),
        ("model_transaction_policy { decoupled: true }", "decoupled models are not offered"),
        ("default_model_filename: 'net.onnx'", "must be 'model.onnx'"),
        ("input [ { name: 'x' reshape { shape: [] } } ]", "reshape of 'x' is not offered"),
        ("max_batch_size: -3", "max_batch_size: Input should be greater"),
    ],
)
def test_what_cannot_be_kept_is_refused(read: Callable[[str], ModelConfig], text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        read(text)


def test_the_same_as_json() -> None:
    config = read_triton_config({"name": "m", "max_batch_size": 4, "dynamic_batching": {"priority_levels": "2"}})
    assert (config.max_batch_size, config.batching.priority_levels) == (4, 2)
    with pytest.raises(ConfigError, match="no field named"):
        read_triton_config({"max_batchsize": 4})


async def test_a_repository_of_tritons_is_served_as_it_is(write_model: WriteModel, tmp_path: Path) -> None:
    bundle = write_model("two", repository=tmp_path / "aside") / "two" / "1"
    for name in ("configured", "plain"):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        shutil.copy(bundle / "model.onnx", tmp_path / "models" / name / "1")
    (tmp_path / "models" / "configured" / "config.pbtxt").write_text(
        "backend: 'onnxruntime' max_batch_size: 2 dynamic_batching { } "
        "input [ { name: 'x' data_type: TYPE_FP32 dims: [ 2 ] } ]"
    )
    repository = Repository.open([tmp_path / "models"])
    await repository.load_all()

    for name in ("configured", "plain"):
        x = np.ones((1, 2), np.float32)
        answers = await asyncio.gather(
            *(repository.get(name).infer(InferRequest(name, {"x": x * k})) for k in range(5))
        )
        assert [answer.outputs["z"][0, 0] for answer in answers] == [0, 2, 4, 6, 8]
    assert repository.get("configured").config()["max_batch_size"] == 2
    repository.close()


async def test_two_configurations_are_one_too_many(write_model: WriteModel) -> None:
    root = write_model("two", config={})
    (root / "two" / "config.pbtxt").write_text("")
    repository = Repository.open([root])
    await repository.load_all()
    assert "has both a model.yaml and a config.pbtxt" in repository.find("two").reason
