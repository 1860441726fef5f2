"""What users of other servers reported of weights and threads, by the numbers of those reports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest

from tidemill import nn
from tidemill.dtype import DType
from tidemill.engine import InferenceSession, Instance, InstanceOptions
from tidemill.engine.threads import available_threads
from tidemill.graph import DeviceRef, TensorType, TensorValue, Weight
from tidemill.weights import open_safetensors, write_safetensors

Array = np.ndarray[Any, Any]
W = np.arange(6, dtype=np.float32).reshape(2, 3)
X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


class Linear(nn.Module):
    def __init__(self, shape: tuple[int, int], dtype: DType = DType.float32) -> None:
        super().__init__()
        self.weight = Weight("weight", dtype, shape, DeviceRef.CPU())

    def __call__(self, x: TensorValue) -> TensorValue:
        return x @ self.weight.T


def mapped(folder: Path) -> Array:
    write_safetensors(folder / "mapped.safetensors", {"w": W})
    return open_safetensors(folder / "mapped.safetensors")["w"]


LAYOUTS: dict[str, Callable[[Path], Array]] = {
    "transposed": lambda _: W.T,
    "Fortran": lambda _: np.asfortranarray(W),
    "every other column": lambda _: np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2],
    "backwards": lambda _: W[::-1],
    "broadcast": lambda _: np.broadcast_to(W[0], (2, 3)),
    "mapped": mapped,
    "big-endian": lambda _: W.astype(">f4"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_b19_values_are_the_same_however_an_array_lies_in_memory(tmp_path: Path, layout: str) -> None:
    array = LAYOUTS[layout](tmp_path)
    expected, before = np.array(array, np.float32), array.tobytes()
    model = Linear(expected.shape)
    model.load_state_dict({"weight": array})
    x = TensorType(DType.float32, ["n", expected.shape[1]], DeviceRef.CPU())
    inputs = np.ones((4, expected.shape[1]), np.float32)
    (y,) = model.compile(x, session=InferenceSession()).execute(inputs)
    np.testing.assert_array_equal(y.to_numpy(), inputs @ expected.T)
    stored = model.bundle(x, name="m").write(tmp_path / "m")
    np.testing.assert_array_equal(Instance.open(stored).run({"x": inputs})["output"], inputs @ expected.T)
    write_safetensors(tmp_path / "w.safetensors", {"w": array})
    np.testing.assert_array_equal(_in_another_process(tmp_path / "w.safetensors"), expected)
    assert array.tobytes() == before


def _in_another_process(path: Path) -> Array:
    program = "import sys; from safetensors.numpy import load_file; print(load_file(sys.argv[1])['w'].tolist())"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    return np.array(json.loads(done.stdout), np.float32)


def by_hand(path: Path, dtype: str, array: Array) -> Path:
    """A safetensors file without the help of any library."""
    data = array.tobytes()
    header = json.dumps({"weight": {"dtype": dtype, "shape": list(array.shape), "data_offsets": [0, len(data)]}})
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + data)
    return path


def test_b20_bfloat16_is_read_bit_by_bit(tmp_path: Path) -> None:
    values = np.array([[1.5, 3e38, 1e-40], [-0.0, 2, 3]], ml_dtypes.bfloat16)
    model = Linear((2, 3), DType.bfloat16)
    model.load_state_dict(open_safetensors(by_hand(tmp_path / "w.safetensors", "BF16", values)))
    assert np.asarray(model.state_dict()["weight"]).tobytes() == values.tobytes()
    with pytest.raises(ValueError, match=r"'weight' had different dtype .*float32.*bfloat16"):
        Linear((2, 3)).load_state_dict(open_safetensors(tmp_path / "w.safetensors"))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"weight": W.astype(np.float64)}, "dtype .*float32.*float64"),
        ({"weight": W.astype(np.int64)}, "dtype .*float32.*int64"),
        ({"weight": W.T.copy()}, r"shape .*\(2, 3\).*\(3, 2\)"),
        ({"weight": W.reshape(6)}, r"shape .*\(2, 3\).*\(6,\)"),
        ({}, "Missing required weights: weight"),
        ({"weight": W, "more": W}, "Unexpected keys in state_dict: more"),
    ],
)
def test_b20_what_does_not_fit_is_refused_by_name_and_changes_nothing(given: dict[str, Array], told: str) -> None:
    model = Linear((2, 3))
    model.load_state_dict({"weight": W})
    with pytest.raises(ValueError, match=told):
        model.load_state_dict(given)
    np.testing.assert_array_equal(np.asarray(model.state_dict()["weight"]), W)


def test_b20_only_names_are_tolerated_when_asked() -> None:
    model = Linear((2, 3))
    assert model.load_state_dict({}, strict=False).missing == ("weight",)
    assert model.load_state_dict({"weight": W, "more": W}, strict=False).unexpected == ("more",)
    with pytest.raises(ValueError, match="dtype"):
        model.load_state_dict({"weight": W.astype(np.float64)}, strict=False)


@pytest.mark.parametrize("names", [1, 3])
def test_b22_weights_of_any_size_lie_outside_the_graph(tmp_path: Path, names: int) -> None:
    """No weight is a constant or an initializer with its own bytes, in the graph or in a function of it."""
    import onnx

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.LayerList([Linear((3, 3)) for _ in range(names)])

        def __call__(self, x: TensorValue) -> TensorValue:
            for layer in self.layers:
                x = layer(x)
            return x

    stack = Stack()
    stack.load_state_dict({f"layers.{i}.weight": np.full((3, 3), i + 1, np.float32) for i in range(names)})
    x = TensorType(DType.float32, ["n", 3], DeviceRef.CPU())
    stored = stack.bundle(x, name="m").write(tmp_path / "m")
    model = onnx.load(str(stored.graph_path), load_external_data=False)
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    assert not any(node.op_type == "Constant" and node.attribute[0].t.dims[:] == [3, 3] for node in nodes)
    assert [t.data_location for t in model.graph.initializer if t.dims[:] == [3, 3]] == [1] * names


def test_b30_threads_are_those_of_the_processs_cpus(write_model: Callable[..., Path]) -> None:
    """Under `taskset -c 0` a model runs on one thread, and so says its configuration; a given number wins."""
    first = str(min(os.sched_getaffinity(0)))
    repository = write_model("two")
    write_model("two", "three", config={"threads": 3})
    for number in range(2):
        write_model("two", f"more{number}", config={"instances": 2})
    command = ["taskset", "-c", first, sys.executable, "-m", "tidemill.cli", "serve", str(repository)]
    ports = ["--http-port", "0", "--grpc-port", "0"]
    with subprocess.Popen([*command, *ports], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            assert server.stderr
            port = re.findall(r"127\.0\.0\.1:(\d+)", server.stdout.readline())[0]
            threads = {}
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                for name in ("two", "three", "more0", "more1"):
                    parameters = client.get(f"/v2/models/{name}/config").json()["parameters"]
                    threads[name] = int(parameters["tidemill.threads"]["string_value"])
        finally:
            server.terminate()
            told = server.communicate()[1]
    assert threads == {"two": 1, "three": 3, "more0": 1, "more1": 1}
    assert "affinity" not in told.lower()


def test_b30_without_limits_the_number_is_the_affinitys(write_model: Callable[..., Path]) -> None:
    from tidemill.bundle import open_bundle

    bundle = open_bundle(write_model("two") / "two" / "1")
    assert 1 <= available_threads() <= len(os.sched_getaffinity(0))
    assert Instance.open(bundle).threads == available_threads()
    assert Instance.open(bundle, InstanceOptions(threads=3)).threads == 3
