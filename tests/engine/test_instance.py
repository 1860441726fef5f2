"""Bundles are loaded with mapped weights, checked against their manifest, and serve batches."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper, parser

from tidemill.batching import Batcher, BatchingOptions
from tidemill.bundle import Bundle, GraphPart, open_bundle
from tidemill.dtype import DType
from tidemill.engine import Instance, InstanceOptions
from tidemill.errors import ConfigError, InvalidBundle, LoadFailed, UnprocessableInput
from tidemill.protocol.types import TensorSpec

TABLE = np.arange(10, 14, dtype=np.float32)
INPUT, OUTPUT = TensorSpec("i", DType.int64, ("batch",)), TensorSpec("y", DType.float32, ("batch",))


@pytest.fixture
def bundle(tmp_path):
    """Looks up table[i]; 4 is refused by the kernel only."""
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (int64[batch] i) => (float[batch] y) { y = Gather(table, i) }'
    )
    table = helper.make_tensor("table", DType.float32.onnx, TABLE.shape, TABLE.tobytes(), raw=True)
    table.ClearField("raw_data")
    table.data_location = onnx.TensorProto.EXTERNAL
    model.graph.initializer.append(table)
    part = GraphPart(model, (INPUT,), (OUTPUT,))
    Bundle(name="lookup", graphs={"main": part}, weights={"table": TABLE}).write(tmp_path / "1")
    return open_bundle(tmp_path / "1")


def test_an_instance_runs_and_says_on_what(bundle):
    instance = Instance.open(bundle, InstanceOptions(threads=1))

    np.testing.assert_array_equal(instance.run({"i": np.array([3, 0])})["y"], [13, 10])
    assert instance.providers == ("CPUExecutionProvider",)
    assert instance.threads == 1
    assert (instance.inputs, instance.outputs) == ((INPUT,), (OUTPUT,))


def test_warming_up_runs_and_tells_the_seconds(bundle):
    ticks = iter([1.0, 1.5])

    assert Instance.open(bundle).warm(clock=lambda: next(ticks)) == 0.5


@pytest.mark.parametrize(
    "spec",
    [replace(INPUT, name="ids"), replace(INPUT, dtype=DType.int32), replace(INPUT, shape=("batch", 2))],
)
def test_a_manifest_that_lies_is_caught(bundle, spec):
    entry = replace(bundle.manifest.main, inputs=(spec,))
    lying = replace(bundle, manifest=replace(bundle.manifest, graphs={"main": entry}))

    with pytest.raises(InvalidBundle, match=r"declares the inputs .*its graph has i: INT64\[batch\]"):
        Instance.open(lying)


@pytest.mark.parametrize(
    ("providers", "error", "text"),
    [(("cuda",), LoadFailed, "CUDAExecutionProvider"), (("cudaa",), ConfigError, "did you mean 'cuda'")],
)
def test_another_provider_is_never_taken_silently(bundle, providers, error, text):
    with pytest.raises(error, match=text):
        Instance.open(bundle, InstanceOptions(providers=providers))


@pytest.mark.parametrize("inline_below", [0.0, float("inf")])
async def test_one_bad_request_among_eight_fails_alone(bundle, inline_below):
    instance = Instance.open(bundle, InstanceOptions(threads=1))
    batcher = Batcher(instance.run, BatchingOptions(max_batch_size=8, inline_below=inline_below))

    for turn in range(50):
        bad = turn % 8
        requests = [{"i": np.array([4 if n == bad else n % 4])} for n in range(8)]
        answers = await asyncio.gather(*(batcher.infer(feed, 1) for feed in requests), return_exceptions=True)
        assert isinstance(answers.pop(bad), UnprocessableInput)
        assert [answer["y"].tolist() for answer in answers] == [[10 + n % 4] for n in range(8) if n != bad]
    batcher.close()
