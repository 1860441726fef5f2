"""What a checkpoint in a store costs: the first start, the next ones, and their memory, as ratios to the file itself.

    python benchmarks/storage.py --megabytes 1536 --shards 3

A web server on this machine stands for the store. Each start is a fresh process. The bundle names the shards by URL and
digest; the first start fetches them into the cache, the second is to find them there without asking the store at all.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

WIDTH = 2048
LAYER_BYTES = WIDTH * WIDTH * 4


class Store(BaseHTTPRequestHandler):
    """The files of a folder, with ranges and etags."""

    protocol_version = "HTTP/1.1"
    folder = Path()
    requests = 0

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        type(self).requests += 1
        path = self.folder / self.path.lstrip("/")
        size = path.stat().st_size
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        begin, end = (int(span[1]), min(int(span[2]) + 1, size)) if span else (0, size)
        self.send_response(206 if span else 200)
        if span:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
        self.send_header("ETag", f'"{path.name}-{size}"')
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        if self.command == "GET":
            with path.open("rb") as file:
                os.sendfile(self.connection.fileno(), file.fileno(), begin, end - begin)


def write_checkpoint(folder: Path, layers: int, shards: int) -> None:
    """A sharded safetensors checkpoint with its index."""
    from tidemill.weights import write_safetensors

    folder.mkdir(parents=True)
    rng, where = np.random.default_rng(0), {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        names = [f"layers.{layer}.weight" for layer in range(layers) if layer % shards == shard]
        write_safetensors(
            folder / file, {name: rng.standard_normal((WIDTH, WIDTH), np.float32) * 0.02 for name in names}
        )
        where |= dict.fromkeys(names, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def write_bundle(folder: Path, layers: int, url: str) -> None:
    """A stack of linear layers over the checkpoint, by reference."""
    from tidemill import nn
    from tidemill.dtype import DType
    from tidemill.graph import DeviceRef, TensorType, TensorValue, Weight, ops

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = Weight("weight", DType.float32, (WIDTH, WIDTH), DeviceRef.CPU())

        def __call__(self, x: TensorValue) -> TensorValue:
            return ops.tanh(x @ self.weight)

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.LayerList([Layer() for _ in range(layers)])

        def __call__(self, x: TensorValue) -> TensorValue:
            for layer in self.layers:
                x = layer(x)
            return x

    x = TensorType(DType.float32, ["batch", WIDTH], DeviceRef.CPU())
    Stack().bundle(x, weights=url, name="stack").write(folder, by_reference=True)


def anonymous() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous"))


def start(folder: Path) -> dict[str, float]:
    """Fetch what is missing, load, and run once."""
    import onnxruntime  # noqa: F401  (its import is no part of a load, here and below)

    from tidemill.bundle.local import make_local
    from tidemill.bundle.stored import open_bundle
    from tidemill.engine import Instance, InstanceOptions

    before, begun = anonymous(), time.perf_counter()
    bundle = make_local(open_bundle(folder))
    local = time.perf_counter()
    instance = Instance.open(bundle, InstanceOptions(threads=1, prepack=False))
    loaded, memory = time.perf_counter(), anonymous() - before
    instance.run({"x": np.ones((1, WIDTH), np.float32)})
    return {"fetch": local - begun, "load": loaded - local, "private": memory}


def load_bare(folder: Path) -> dict[str, float]:
    """ONNX Runtime alone on the files that are here now."""
    import onnxruntime

    from tidemill.bundle.local import make_local
    from tidemill.bundle.stored import open_bundle

    path = str(make_local(open_bundle(folder)).graph_path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_prepacking", "1")
    begun = time.perf_counter()
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return {"load": time.perf_counter() - begun}


def in_a_process(way: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, __file__, f"--{way}", str(folder)]
    found: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1536)
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--start", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.start or args.bare:
        print(json.dumps(start(args.start) if args.start else load_bare(args.bare)))
        return
    layers = max(args.megabytes * 1024**2 // LAYER_BYTES, args.shards)
    with tempfile.TemporaryDirectory() as place:
        os.environ["TIDEMILL_CACHE"] = f"{place}/cache"
        write_checkpoint(Path(place) / "store", layers, args.shards)
        Store.folder = Path(place) / "store"
        server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/model.safetensors.index.json"
        bundle, size = Path(place) / "bundle", layers * LAYER_BYTES
        write_bundle(bundle, layers, url)
        subprocess.run(["rm", "-r", f"{place}/cache"], check=True)
        print(f"{size / 1e6:.0f} MB in {args.shards} shards, {layers} layers")
        loads: list[float] = []
        for number in range(args.starts):
            asked = Store.requests
            found = in_a_process("start", bundle)
            loads.append(found["load"])
            print(
                f"  start {number + 1}: fetch {found['fetch']:.2f} s with {Store.requests - asked} requests, "
                f"load {found['load'] * 1e3:.0f} ms, private memory {found['private'] / size:.3f} of the weights"
            )
        bare = [in_a_process("bare", bundle)["load"] for _ in range(args.starts)]
        print(f"  load {min(loads) / min(bare):.2f} of the bare runtime's {min(bare) * 1e3:.0f} ms (least of each)")
        server.shutdown()


if __name__ == "__main__":
    main()
