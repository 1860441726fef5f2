"""What loading a bundle costs in time and memory, as ratios to ONNX Runtime on the same files.

    python benchmarks/engine_load.py --layers 6 24 96 --width 256

Each figure is the least of several fresh processes, so that nothing is warm but the page cache.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

BLOCK = """<domain: "f", opset_import: ["" : 21]>
block (x, wq, wk, wv, wo, up, down, s, b) => (y) {
    h = LayerNormalization <axis = -1> (x, s, b)
    q = MatMul (h, wq) k = MatMul (h, wk) v = MatMul (h, wv)
    kt = Transpose <perm = [0, 2, 1]> (k) a = MatMul (q, kt) p = Softmax <axis = -1> (a)
    c = MatMul (p, v) o = MatMul (c, wo) r = Add (x, o)
    m = MatMul (r, up) g = Gelu (m) d = MatMul (g, down) y = Add (r, d)
}"""
MATRICES = {"wq": (1, 1), "wk": (1, 1), "wv": (1, 1), "wo": (1, 1), "up": (1, 4), "down": (4, 1)}


def write_bundle(folder: Path, layers: int, width: int) -> None:
    from onnx import TensorProto, helper, parser

    from tidemill.bundle import Bundle, GraphPart
    from tidemill.dtype import DType
    from tidemill.protocol import TensorSpec

    shapes = {name: tuple(width * factor for factor in factors) for name, factors in MATRICES.items()}
    shapes |= {"s": (width,), "b": (width,)}
    signature = f"g (float[n, t, {width}] x) => (float[n, t, {width}] y) {{ y = Identity (x) }}"
    text = f'<ir_version: 10, opset_import: ["" : 21, "f" : 1]> {signature}\n'
    model = parser.parse_model(text + BLOCK)
    del model.graph.node[:]
    rng, weights = np.random.default_rng(0), {}
    for layer in range(layers):
        names = {name: f"layers.{layer}.{name}" for name in shapes}
        for name, full in names.items():
            weights[full] = (rng.standard_normal(shapes[name], np.float32) / width**0.5).astype(np.float32)
            tensor = TensorProto(name=full, data_type=TensorProto.FLOAT, dims=shapes[name])
            tensor.data_location = TensorProto.EXTERNAL
            model.graph.initializer.append(tensor)
        source, target = f"h{layer}" if layer else "x", f"h{layer + 1}" if layer < layers - 1 else "y"
        node = helper.make_node("block", [source, *names.values()], [target], f"layers.{layer}", domain="f")
        model.graph.node.append(node)
    x, y = (TensorSpec(name, DType.float32, ("n", "t", width)) for name in "xy")
    Bundle("stack", {"main": GraphPart(model, (x,), (y,))}, weights).write(folder)


def anonymous() -> int:
    """Private memory of this process in bytes."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous"))


def measure(folder: Path, way: str, prepack: bool) -> dict[str, Any]:
    """Load once in this process, run once, and tell what it took."""
    import onnxruntime

    from tidemill.bundle import open_bundle
    from tidemill.engine import ArtifactCache, Instance, InstanceOptions

    cache = ArtifactCache(folder.parent / "artifacts") if way == "cached" else None
    before, start, cpu = anonymous(), time.perf_counter(), time.process_time()
    if way == "runtime":
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.disable_prepacking", str(int(not prepack)))
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        run = lambda x: session.run(None, {"x": x})[0]  # noqa: E731
    else:
        instance = Instance.open(open_bundle(folder), InstanceOptions(threads=1, prepack=prepack, artifacts=cache))
        run = lambda x: instance.run({"x": x})["y"]  # noqa: E731
    taken, cpu_taken, memory = time.perf_counter() - start, time.process_time() - cpu, anonymous() - before
    x = np.ones((1, 16, int(np.fromfile(folder / "width", np.int64)[0])), np.float32)
    run(x)
    start = time.process_time()
    for _ in range(3):
        run(x)
    return {"load": taken, "cpu": cpu_taken, "memory": memory, "run": (time.process_time() - start) / 3}


def best(folder: Path, way: str, prepack: bool, rounds: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", str(folder), way, str(int(prepack))]
    found = [
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(rounds)
    ]
    return {key: min(result[key] for result in found) for key in found[0]}


def report(layers: int, width: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "1"
        write_bundle(folder, layers, width)
        size = (folder / "weights.safetensors").stat().st_size
        np.array([width]).tofile(folder / "width")
        first = best(folder, "cached", True, 1)  # compiles
        print(f"{layers} layers of width {width}, {size / 1e6:.0f} MB; first load with a cache {first['load']:.2f} s")
        for prepack in (True, False):
            base = best(folder, "runtime", prepack, rounds)
            for way in ("runtime", "plain", "cached"):
                found = base if way == "runtime" else best(folder, way, prepack, rounds)
                load, cpu, run = (found[key] / base[key] for key in ("load", "cpu", "run"))
                setting = f"prepack {'on ' if prepack else 'off'} {way:8}"
                print(
                    f"  {setting} load {found['load'] * 1e3:7.1f} ms = {load:.2f}  cpu {cpu:.2f}  run {run:.2f}"
                    f"  private {found['memory'] / size:.2f} of weights"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[6, 24, 96])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        folder, way, prepack = args.measure
        print(json.dumps(measure(Path(folder), way, prepack == "1")))
        return
    for layers in args.layers:
        report(layers, args.width, args.rounds)


if __name__ == "__main__":
    main()
