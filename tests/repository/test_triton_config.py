from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidemill.bundle.config import ModelConfig, ReshapeConfig
from tidemill.bundle.sequence_config import ControlConfig, SequenceConfig, StateConfig
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
        ("response_cache { enable: true }", "response_cache.enable", True),
        ("instance_group [ { kind: KIND_GPU gpus: [ 3 ] } ]", "provider_options", {"cuda": {"device_id": 3}}),
        ("max_batch_size: 8 model_warmup { batch_size: 4 count: 2 inputs { key: 'x' value { dims: [ 3 ] } } }",
         "warmup",
         ({"x": (4, 3)}, {"x": (4, 3)})),
        ("model_warmup { inputs { key: 'x' value { dims: [ 2, 3 ] } } }", "warmup", ({"x": (2, 3)},)),
        ("max_batch_size: 8 input [ { name: 'x' dims: [ 1 ] reshape { shape: [] } } ]", "reshape",
         {"x": ReshapeConfig(seen=(1,), model=())}),
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
        ("metric_tags { key: 'a' value: 'b' } input { name: 'x' optional: true }", ["metric_tags", "input.optional"]),
        ("model_warmup { inputs { key: 'x' value { input_data_file: 'f' } } }", ["model_warmup.input_data_file"]),
        ("instance_group [ { gpus: [ 0, 1 ] rate_limiter { priority: 1 } } ]", ["instance_group.gpus", "rate_limiter"]),
        ("sequence_batching { direct { minimum_slot_utilization: 0.5 } iterative_sequence: true }",
         ["sequence_batching.direct.minimum_slot_utilization", "sequence_batching.iterative_sequence"]),
        ("optimization { graph { level: 1 } input_pinned_memory { enable: true } }", ["graph", "input_pinned_memory"]),
        ("optimization { execution_accelerators { cpu_execution_accelerator { name: 'openvino' } } }", ["openvino"]),
        ("parameters { key: 'execution_mode' value { string_value: '1' } }", ["parameters.execution_mode"]),
        ("from_tomorrow { x: 1 } max_batch_size: 0", ["from_tomorrow"]),
    ],
)  # fmt: skip
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
        ("ensemble_scheduling { }", "ensemble.steps"),
        ("platform: 'ensemble'", "the model is for 'ensemble'"),
        ("batch_input { kind: BATCH_ELEMENT_COUNT }", "batch_input is not offered"),
        ("model_transaction_policy { decoupled: true }", "decoupled models are not offered"),
        ("default_model_filename: 'net.onnx'", "must be 'model.onnx'"),
        ("max_batch_size: -3", "max_batch_size: Input should be greater"),
    ],
)
def test_what_cannot_be_kept_is_refused(read: Callable[[str], ModelConfig], text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        read(text)


SEQUENCES = """
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "told" data_type: TYPE_INT64 dims: [ 1 ] } ]
sequence_batching {
  max_sequence_idle_microseconds: 7000000
  oldest { max_candidate_sequences: 3 preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 100 }
  control_input [
    { name: "start_in" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "id_in" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } ] }
  ]
  state [ { input_name: "sum" output_name: "next_sum" data_type: TYPE_FP32 dims: [ 1 ]
            initial_state: { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true name: "zero" } } ]
}
"""


def test_sequences_are_taken_over(read: Callable[[str], ModelConfig], caplog: pytest.LogCaptureFixture) -> None:
    config = read(SEQUENCES)
    assert config.sequence == SequenceConfig(
        strategy="oldest",
        max_candidate_sequences=3,
        max_waiting_sequences=1024,
        idle_timeout_microseconds=7_000_000,
        state=(StateConfig(input="sum", output="next_sum", shape=(1,)),),
        controls=(
            ControlConfig(input="start_in", kind="start", values=(0, 1)),
            ControlConfig(input="id_in", kind="id"),
        ),
    )
    assert (config.batching.preferred_batch_size, config.batching.max_queue_delay_microseconds) == ((2,), 100)
    assert caplog.text == ""
    shown = read("sequence_batching { state { input_name: 'a' output_name: 'b' } } output { name: 'b' }").sequence
    assert shown
    assert (shown.strategy, shown.idle_timeout_microseconds, shown.state[0].shown) == ("direct", 1_000_000, True)


async def test_an_ensemble_of_tritons_is_served_as_it_is(write_model: WriteModel, tmp_path: Path) -> None:
    root = write_model("two")
    for name, dims in (("pipe", "2"), ("wrong", "3")):
        (root / name / "1").mkdir(parents=True)  # Triton wants it, and it is empty
        (root / name / "config.pbtxt").write_text(
            f"""
            name: "{name}" platform: "ensemble" max_batch_size: 8
            input [ {{ name: "IN" data_type: TYPE_FP32 dims: [ {dims} ] }} ]
            output [ {{ name: "OUT" data_type: TYPE_FP32 dims: [ 2 ] }} ]
            ensemble_scheduling {{ step [
              {{ model_name: "two" model_version: -1 input_map {{ key: "x" value: "IN" }}
                 output_map {{ key: "y" value: "between" }} }},
              {{ model_name: "two" model_version: 1 input_map {{ key: "x" value: "between" }}
                 output_map {{ key: "z" value: "OUT" }} }}
            ] }}
            """
        )
    repository = Repository.open([root])
    await repository.load_all()
    answer = await repository.get("pipe").infer(InferRequest("pipe", {"IN": np.ones((3, 2), np.float32)}))
    assert answer.outputs["OUT"].tolist() == [[4, 4]] * 3
    assert "'IN' is declared with shape [-1, 3]" in repository.find("wrong").reason
    repository.close()


@pytest.mark.parametrize(
    ("kind", "config", "given", "answer"),
    [
        ("sum", "max_batch_size: 4 output { name: 'y' dims: [ 1 ] reshape { shape: [] } }", [[1, 2]], [[3]]),
        ("gather", "max_batch_size: 4 input { name: 'x' dims: [ 1 ] reshape { shape: [] } }", [[1], [3]], [20, 40]),
        ("sum", "max_batch_size: 4 input { name: 'x' dims: [ 1, -1 ] reshape { shape: [ -1 ] } }", [[[1, 2]]], [3]),
        ("value", "input { name: 'x' dims: [ -1 ] reshape { shape: [ -1, 1 ] } }", [5, 6], [[1], [1]]),
    ],
)
async def test_callers_see_the_shapes_that_were_agreed(
    write_model: WriteModel, kind: str, config: str, given: list[Any], answer: list[Any]
) -> None:
    root = write_model(kind)
    (root / kind / "config.pbtxt").write_text(config)
    repository = Repository.open([root])
    await repository.load_all()
    served = repository.get(kind)
    x = np.array(given, served.inputs[0].dtype.to_numpy())
    answers = await asyncio.gather(*(served.infer(InferRequest(kind, {"x": x})) for _ in range(3)))
    assert [one.outputs["y"].tolist() for one in answers] == [answer] * 3
    repository.close()


async def test_a_reshape_that_is_not_the_models_is_told(write_model: WriteModel) -> None:
    root = write_model("sum")
    (root / "sum" / "config.pbtxt").write_text(
        "max_batch_size: 4 input { name: 'x' dims: [ 4 ] reshape { shape: [ 2, 2 ] } }"
    )
    repository = Repository.open([root])
    await repository.load_all()
    assert "has not the shape [2, 2]" in repository.find("sum").reason


async def test_warmup_runs_before_it_is_ready(write_model: WriteModel) -> None:
    root = write_model("sum")
    (root / "sum" / "config.pbtxt").write_text(
        "max_batch_size: 4 model_warmup { batch_size: 2 inputs { key: 'x' value { dims: [ 7, 1 ] } } }"
    )
    repository = Repository.open([root])
    await repository.load_all()
    assert "warmup: 'x' is given the shape [2, 7, 1], expected x: FP32[n, k]" in repository.find("sum").reason


async def test_a_graph_that_is_not_what_was_declared_is_not_served(write_model: WriteModel) -> None:
    root = write_model("two")
    (root / "two" / "config.pbtxt").write_text(
        "max_batch_size: 4 input { name: 'x' data_type: TYPE_INT64 dims: [ 2 ] } "
        "output [ { name: 'w' }, { name: 'z' data_type: TYPE_FP32 dims: [ 3 ] } ]"
    )
    repository = Repository.open([root])
    await repository.load_all()
    for fault in (
        "input 'x' is declared as INT64, but is x: FP32[n, 2]",
        "it has no output 'w', but y, z",
        "output 'z' is declared with shape [-1, 3], but is z: FP32[n, 2]",
    ):
        assert fault in repository.find("two").reason


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
