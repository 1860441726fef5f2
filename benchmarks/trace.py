"""How long tracing, sharing functions and exporting take for transformers of 4, 24 and 96 layers.

The figure that counts is the time per node: it must not grow with the number of layers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import TensorType
from tidemill.graph.check import check_model
from tidemill.graph.export import to_model
from tidemill.graph.plan import make_plan
from tidemill.modelzoo.minilm import Config, Encoder

HIDDEN = TensorType(DType.float32, ["batch", "seq", 384])
MASK = TensorType(DType.float32, ["batch", 1, 1, "seq"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 24, 96])
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    rows = [measure(layers, args.repeat) for layers in args.layers]
    print(f"{'layers':>6} {'nodes':>6} {'trace s':>8} {'us/node':>8} {'sharing/trace':>13} {'export+check s':>14}")
    for row in rows:
        print(
            f"{row['layers']:6} {row['nodes']:6} {row['trace']:8.3f} {row['trace'] / row['nodes'] * 1e6:8.1f} "
            f"{row['sharing'] / row['trace']:13.3f} {row['export']:14.3f}"
        )
    print(json.dumps(rows))


def measure(layers: int, repeat: int) -> dict[str, Any]:
    """Medians in seconds."""
    module: nn.Module = Encoder(Config(num_hidden_layers=layers))
    graph = module.trace(HIDDEN, MASK)

    def export() -> None:
        check_model(to_model(graph, weights="inputs"))

    flat = _median(lambda: make_plan(graph.body, "off"), repeat)
    return {
        "layers": layers,
        "nodes": len(graph.body.nodes),
        "trace": _median(lambda: module.trace(HIDDEN, MASK), repeat),
        "sharing": _median(lambda: make_plan(graph.body, "auto"), repeat) - flat,
        "export": _median(export, repeat),
    }


def _median(work: Callable[[], Any], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


if __name__ == "__main__":
    main()
