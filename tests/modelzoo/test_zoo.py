"""What every model of the zoo must bring: this list is what a new one is held to."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tidemill.bundle import load_config, open_bundle
from tidemill.modelzoo import ARCHITECTURES, ZOO

ROOT = Path(__file__).parents[2]
EVERY = ZOO | ARCHITECTURES
IMPORTED = {"magika", "rapidocr-rec"}
"""Exported by others: their graphs are as they are."""
REPEATED = {
    "efficientnet-lite0": {"Block": 2, "Block_1": 2, "Block_2": 3},
    "minilm": {"EncoderLayer": 6},
    "smollm2": {"TransformerBlock": 30},
    "smollm2-chat": {"TransformerBlock": 30},
    "smollm2-int4": {"TransformerBlock": 30},
}
"""How often each shared function is called."""
PAGE = (ROOT / "docs" / "modelzoo.md").read_text()
LOCKS = "".join(file.read_text() for file in ROOT.glob("requirements-weights*.lock"))

Built = Callable[[str], Path]


DERIVED = ("minilm-text", "efficientnet-lite0-photo")
"""Models that another runs; they have no graph of their own."""


def served(name: str) -> tuple[str, ...]:
    """The folders that have a bundle of their own."""
    return tuple(one for one in ZOO[name].served if one not in DERIVED) or (name,)


def source_file(name: str) -> Path:
    module = EVERY[name].build.__module__.rpartition(".")[2]
    return ROOT / "modelzoo" / "tidemill" / "modelzoo" / f"{module}.py"


@pytest.mark.parametrize("name", EVERY)
def test_the_pages_and_locks_know_it(name: str) -> None:
    assert f"| [{name}](" in PAGE, f"docs/modelzoo.md lacks {name}: run python docs/generate_modelzoo.py"
    assert not EVERY[name].package or f"\n{EVERY[name].package}==" in LOCKS
    assert EVERY[name].licence


@pytest.mark.parametrize("name", EVERY)
def test_it_is_one_file_over_the_public_api(name: str) -> None:
    tree = ast.parse(source_file(name).read_text())
    assert ast.get_docstring(tree)
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    rooms = {
        module for module in modules if module.startswith("tidemill") and not module.startswith("tidemill.modelzoo")
    }
    allowed = {"tidemill", "tidemill.dtype", "tidemill.graph", "tidemill.nn", "tidemill.weights", "tidemill.bundle"}
    assert rooms <= allowed


@pytest.mark.parametrize("name", ZOO)
def test_it_builds_small_and_sound_graphs_fast(name: str, built: Built, tmp_path: Path) -> None:
    for folder in (built(name) / one / "1" for one in served(name)):
        open_bundle(folder).verify()
        load_config(folder.parent / "model.yaml")
        onnx.checker.check_model(str(folder / "model.onnx"), full_check=name not in IMPORTED)
        if name not in IMPORTED:
            assert (folder / "model.onnx").stat().st_size < 200_000
    if not name.startswith("smollm2"):
        begin = time.perf_counter()
        ZOO[name].build(tmp_path)
        assert time.perf_counter() - begin < 10


@pytest.mark.parametrize("name", REPEATED)
def test_repeated_blocks_are_shared_functions(name: str, built: Built) -> None:
    graph = onnx.load(built(name) / name / "1" / "model.onnx", load_external_data=False)
    calls = [node.op_type for node in graph.graph.node]
    assert {function.name: calls.count(function.name) for function in graph.functions} == REPEATED[name]


@pytest.mark.parametrize("name", ZOO)
def test_rows_of_a_batch_equal_single_ones(name: str, open_model: Callable[..., Any]) -> None:
    run = open_model(name, served(name)[0]).run
    random = np.random.default_rng(0)
    inputs = {key: np.concatenate([array[:1]] * 3) for key, array in ZOO[name].example_inputs().items()}
    for array in inputs.values():
        if array.dtype.kind == "f":
            array += 0.1 * random.standard_normal(array.shape).astype(array.dtype)
    together = run(inputs)
    for row in range(3):
        alone = run({key: array[row : row + 1] for key, array in inputs.items()})
        for output, values in alone.items():
            np.testing.assert_allclose(together[output][row], values[0], rtol=1e-4, atol=2e-4, err_msg=output)
