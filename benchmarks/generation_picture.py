"""Draws real steps of a generation over time, for docs/generation.md.

python benchmarks/generation_picture.py --model models/smollm2-int4 docs/generation.png
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import matplotlib as mpl
import numpy as np

from tidemill.bundle import open_bundle
from tidemill.engine import Instance
from tidemill.engine.slot_session import SlotSession
from tidemill.generation import (
    GenerationRequest,
    Generator,
    GeneratorOptions,
    Observers,
    SamplingOptions,
    StepRecord,
    TextTokenizer,
)

TEXTS, SLOTS, CHUNK = 12, 8, 64


async def steps(folder: Path) -> list[StepRecord]:
    """Twelve texts of different lengths that arrive one after the other."""
    random, seen = np.random.default_rng(2), []
    session = SlotSession(Instance.open(open_bundle(folder / "1")).session, SLOTS, 1024)
    for count in range(1, SLOTS + 1):
        session.decode([0] * count, [0] * count)
    tokenizer = TextTokenizer.open(folder / "tokenizer.json")
    generator = Generator(session, tokenizer, GeneratorOptions(chunk=CHUNK), Observers(seen.append))
    tasks = []
    for _ in range(TEXTS):
        prompt = random.integers(100, 40_000, int(random.integers(20, 400))).tolist()
        sampling = SamplingOptions(temperature=0.0)
        request = GenerationRequest(tuple(prompt), int(random.integers(15, 90)), ignore_eos=True, sampling=sampling)
        tasks.append(asyncio.create_task(generator.submit(request).whole()))
        await asyncio.sleep(float(random.exponential(0.25)))
    await asyncio.gather(*tasks)
    generator.close()
    return seen


def draw(records: list[StepRecord], target: Path) -> None:
    """Bars of steps, as high as texts got a token; below them the tokens of prompts that were read."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    first = records[0].started
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(10, 4.2), height_ratios=(3, 1))
    for record in records:
        begin = record.started - first
        if record.rows:
            above.bar(
                begin,
                record.rows,
                record.decode_seconds,
                align="edge",
                color="#0b7285",
                edgecolor="white",
                linewidth=0.2,
            )
        if record.chunk:
            below.bar(begin + record.decode_seconds, record.chunk, record.chunk_seconds, align="edge", color="#e8590c")
    times = [record.started - first for record in records]
    above.step(times, [record.waiting for record in records], where="post", color="#868e96", label="texts that wait")
    above.set_ylabel("texts that get a token")
    above.legend(loc="upper right", frameon=False)
    below.set_ylabel("tokens read")
    below.set_xlabel("seconds")
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(target, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    draw(asyncio.run(steps(given.model)), given.target)


if __name__ == "__main__":
    main()
