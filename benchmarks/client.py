"""What a call costs the client: CPU time of tidemill's client against Triton's, over REST and gRPC, side by side.

Usage: client.py [--rounds N] [--calls N]

The server runs in a process of its own and answers with what it was sent; only this process's CPU time counts
(user and system, all threads). Rounds are shuffled; a ratio is that of the medians, below 1 where tidemill is cheaper.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http

from tidemill import nn
from tidemill.client import Client
from tidemill.dtype import DType
from tidemill.graph import TensorType, TensorValue

Call = Callable[[Any], Any]
_SIZES = {"64 B": (1, 16), "4 kB": (1, 1024)}
_LARGE = (1, 8 << 20)


class Echo(nn.Module):
    """What came in."""

    def __call__(self, x: TensorValue) -> dict[str, TensorValue]:
        return {"y": x + 0.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=200)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Echo().bundle(TensorType(DType.float32, ["batch", "n"])).write(Path(folder, "echo", "1"))
        with _serving(folder) as addresses:
            _compare(addresses, args.rounds, args.calls)
            _memory(addresses)


@contextmanager
def _serving(folder: str) -> Iterator[dict[str, str]]:
    command = [sys.executable, "-m", "tidemill.cli", "serve", folder, "--http-port", "0", "--grpc-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            ready = re.search(r"http://(\S+) and grpc://(\S+)", server.stdout.readline())
            assert ready, "the server did not start"
            yield {"http": ready[1], "grpc": ready[2]}
        finally:
            server.terminate()


def _compare(addresses: dict[str, str], rounds: int, calls: int) -> None:
    arms = {
        (wire, size, name): (make(addresses), np.zeros(shape, np.float32))
        for size, shape in _SIZES.items()
        for (wire, name), make in _CLIENTS.items()
    }
    spent: dict[tuple[str, str, str], list[float]] = {arm: [] for arm in arms}
    for call, array in arms.values():
        for _ in range(50):
            call(array)
    for _ in range(rounds):
        for arm in random.sample(list(arms), len(arms)):
            call, array = arms[arm]
            begun = time.process_time()
            for _ in range(calls):
                call(array)
            spent[arm].append((time.process_time() - begun) / calls * 1e6)
    print(f"{'wire':6} {'tensor':8} {'tidemill us':>12} {'triton us':>10} {'ratio':>6}")
    for wire in ("http", "grpc"):
        for size in _SIZES:
            ours, theirs = (statistics.median(spent[wire, size, name]) for name in ("tidemill", "triton"))
            print(f"{wire:6} {size:8} {ours:12.1f} {theirs:10.1f} {ours / theirs:6.2f}")


def _memory(addresses: dict[str, str]) -> None:
    """The peak of Python's memory in a call, in sizes of the tensor, which goes there and comes back."""
    array = np.zeros(_LARGE, np.float32)
    for (wire, name), make in _CLIENTS.items():
        call = make(addresses)
        call(array[:, :16])
        tracemalloc.start()
        call(array)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(f"{wire:6} {name:9} a tensor of {array.nbytes >> 20} MiB: peak of {peak / array.nbytes:.1f} tensors")


def _ours(wire: str) -> Callable[[dict[str, str]], Call]:
    def make(addresses: dict[str, str]) -> Call:
        client = Client(f"{wire}://{addresses[wire]}")
        return lambda array: client.infer("echo", {"x": array})["y"]

    return make


def _tritons(wire: str, module: Any) -> Callable[[dict[str, str]], Call]:
    def make(addresses: dict[str, str]) -> Call:
        client = module.InferenceServerClient(addresses[wire])

        def call(array: Any) -> Any:
            tensor = module.InferInput("x", list(array.shape), "FP32")
            tensor.set_data_from_numpy(array)
            return client.infer("echo", [tensor]).as_numpy("y")

        return call

    return make


_CLIENTS: dict[tuple[str, str], Callable[[dict[str, str]], Call]] = {
    ("http", "tidemill"): _ours("http"),
    ("http", "triton"): _tritons("http", tritonclient.http),
    ("grpc", "tidemill"): _ours("grpc"),
    ("grpc", "triton"): _tritons("grpc", tritonclient.grpc),
}

if __name__ == "__main__":
    main()
