"""Times llama.cpp's own steps; run by its environment, prints JSON, knows nothing of tidemill.

    python llamacpp_steps.py MODEL.gguf --threads 2 --streams 1,4,8,16 --rounds 3

Prefill is one prompt of 128 tokens; decode is one token for each of several sequences that hold 128 tokens each. Times
are of `llama_decode` alone, the best of the rounds, without sampling.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

PROMPT = 128
STEPS = 24


def requantized(path: str, kind: str) -> str:
    """The file in another quantisation, made beside it if it is not there."""
    target = Path(path).with_suffix(f".{kind}.gguf")
    if not target.exists():
        options = llama_cpp.llama_model_quantize_default_params()
        options.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
        options.allow_requantize = True
        options.nthread = 2
        assert llama_cpp.llama_model_quantize(path.encode(), str(target).encode(), ctypes.byref(options)) == 0
    return str(target)


class Steps:
    """One model with room for some sequences."""

    def __init__(self, path: str, sequences: int, threads: int) -> None:
        self.model = llama_cpp.llama_load_model_from_file(path.encode(), llama_cpp.llama_model_default_params())
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = sequences * (PROMPT + STEPS * 4 + 64)
        options.n_batch = options.n_ubatch = 512
        options.n_seq_max = sequences
        options.n_threads = options.n_threads_batch = threads
        self.context = llama_cpp.llama_new_context_with_model(self.model, options)
        self.batch = llama_cpp.llama_batch_init(512, 0, 1)
        self.random = np.random.default_rng(0)

    def run(self, places: list[tuple[int, int]]) -> float:
        """Seconds for a random token at each (sequence, position); logits of the last of each sequence."""
        tokens = self.random.integers(100, 40_000, len(places)).tolist()
        self.batch.n_tokens = len(places)
        last = {sequence: number for number, (sequence, _) in enumerate(places)}
        for number, (sequence, position) in enumerate(places):
            self.batch.token[number] = tokens[number]
            self.batch.pos[number] = position
            self.batch.n_seq_id[number] = 1
            self.batch.seq_id[number][0] = sequence
            self.batch.logits[number] = last[sequence] == number
        begun = time.perf_counter()
        assert llama_cpp.llama_decode(self.context, self.batch) == 0
        llama_cpp.llama_synchronize(self.context)
        return time.perf_counter() - begun

    def clear(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def close(self) -> None:
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_free_model(self.model)


def measured(path: str, threads: int, streams: list[int], rounds: int) -> dict[str, float]:
    """Tokens a second: "prefill", and decode by the number of streams."""
    steps = Steps(path, max(streams), threads)
    best: dict[str, float] = {}
    for _ in range(rounds):
        steps.clear()
        for sequence in range(max(streams)):
            seconds = steps.run([(sequence, place) for place in range(PROMPT)])
            best["prefill"] = max(best.get("prefill", 0.0), PROMPT / seconds)
        place = PROMPT
        for count in streams:
            # Those that take no part stay as long as they are; positions only ever grow.
            for _ in range(STEPS):
                seconds = steps.run([(sequence, place) for sequence in range(count)])
                best[str(count)] = max(best.get(str(count), 0.0), count / seconds)
                place += 1
            for sequence in range(count, max(streams)):
                steps.run([(sequence, one) for one in range(place - STEPS, place)])
    steps.close()
    return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--streams", default="1,4,8,16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quantize", default="")
    given: Any = parser.parse_args()
    path = requantized(given.model, given.quantize) if given.quantize else given.model
    print(json.dumps(measured(path, given.threads, [int(one) for one in given.streams.split(",")], given.rounds)))


if __name__ == "__main__":
    main()
