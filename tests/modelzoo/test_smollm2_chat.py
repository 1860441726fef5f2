"""SmolLM2 over slots: the same tokens as transformers', alone and among others; four bits within their tolerance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, dequantize

from tidemill.bundle import open_bundle
from tidemill.engine import Instance
from tidemill.engine.slot_session import SlotSession
from tidemill.generation import GenerationRequest, Generator, GeneratorOptions, SamplingOptions, TextTokenizer
from tidemill.modelzoo.smollm2_int4 import split_q4_1, split_q8_0

Built = Callable[[str], Path]
Expected = Callable[[str], Any]


def session(built: Built, name: str, slots: int = 4, capacity: int = 128) -> SlotSession:
    return SlotSession(Instance.open(open_bundle(built(name) / name / "1")).session, slots, capacity)


def greedy(prompt: list[int], count: int) -> GenerationRequest:
    return GenerationRequest(tuple(prompt), count, ignore_eos=True, sampling=SamplingOptions(temperature=0.0))


async def test_greedy_tokens_are_transformers_whoever_comes_and_goes(built: Built, expected: Expected) -> None:
    cases = expected("smollm2")["cases"]
    stepper = session(built, "smollm2-chat")
    tokenizer = TextTokenizer.open(built("smollm2-chat") / "smollm2-chat" / "tokenizer.json")
    generator = Generator(stepper, tokenizer, GeneratorOptions(chunk=3, lonely_chunk=4))
    random = np.random.default_rng(0)
    others = [greedy(random.integers(100, 40_000, 2 + 5 * n).tolist(), 3 + 7 * n) for n in range(6)]
    wanted = [greedy(case["input_ids"], 24) for case in cases]
    order = [others[0], wanted[0], others[1], wanted[1], others[2], others[3], wanted[2], others[4], others[5]]
    wholes = await asyncio.gather(*(generator.submit(request).whole() for request in order))
    alone = [await generator.submit(request).whole() for request in wanted]
    generator.close()
    for request, case, single in zip(wanted, cases, alone, strict=True):
        among = next(whole for one, whole in zip(order, wholes, strict=True) if one is request)
        for whole in (among, single):
            assert [choice.token for choice in whole.choices] == case["greedy_new_ids"]
            assert whole.text == case["greedy_text"]


def test_logits_do_not_depend_on_neighbours(built: Built, expected: Expected) -> None:
    stepper = session(built, "smollm2-chat")
    case = expected("smollm2")["cases"][0]
    prompt, random = case["input_ids"], np.random.default_rng(1)
    top = case["last_logits_top5_ids"]
    first = stepper.prefill(0, prompt, 0)
    np.testing.assert_allclose(first[top], case["last_logits_top5"], atol=2e-4)
    alone = stepper.decode([7042], [len(prompt)]).copy()
    for slot in (1, 2, 3):
        stepper.prefill(slot, random.integers(100, 40_000, 20 * slot).tolist(), 0)
    among = stepper.decode([7042, 5, 6, 7], [len(prompt), 20, 40, 60])
    np.testing.assert_allclose(among[0], alone[0], atol=1e-4)
    stepper.swap(0, 2, 60)
    moved = stepper.decode([6, 5, 7042, 7], [40, 20, len(prompt), 60])
    np.testing.assert_allclose(moved[2], alone[0], atol=1e-4)


def judged(stepper: SlotSession, tokens: list[int]) -> tuple[float, list[int]]:
    """The mean negative log likelihood of a text, and the most probable token in each place."""
    losses, best = [], []
    for place in range(len(tokens) - 1):
        logits = stepper.prefill(0, tokens[place : place + 1], place).astype(np.float64)
        losses.append(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[tokens[place + 1]])
        best.append(int(logits.argmax()))
    return float(np.mean(losses)), best


def test_four_bits_are_about_as_good(built: Built, expected: Expected) -> None:
    told = expected("smollm2")
    tokenizer = TextTokenizer.open(built("smollm2-int4") / "smollm2-int4" / "tokenizer.json")
    tokens = list(tokenizer.encode(told["text_for_nll"]))
    assert len(tokens) == told["text_n_tokens"]
    exact, most = judged(session(built, "smollm2-chat", 1), tokens)
    loss, best = judged(session(built, "smollm2-int4", 1), tokens)
    assert exact == pytest.approx(told["mean_nll"], abs=1e-3)
    assert loss == pytest.approx(told["mean_nll"], abs=0.05)
    assert np.mean(np.array(best) == most) >= 0.9


@pytest.mark.parametrize(("kind", "split", "bits"), [("Q4_1", split_q4_1, 4), ("Q8_0", split_q8_0, 8)])
def test_blocks_are_split_exactly(kind: str, split: Any, bits: int) -> None:
    encoding = GGMLQuantizationType[kind]
    size = {"Q4_1": 20, "Q8_0": 34}[kind]
    blocks = np.random.default_rng(2).integers(0, 256, (5, 3, size), np.uint8)
    head = np.array([0.02, -0.3] if kind == "Q4_1" else [0.02], np.float16).view(np.uint8)
    blocks[..., : len(head)] = head
    flat = blocks.reshape(5, -1)
    parts = split(flat)
    codes = parts["codes"]
    if bits == 4:
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(5, 3, 32)
    numbers = (codes.astype(np.float32) - (1 << (bits - 1))) * parts["scales"][..., None]
    if "offsets" in parts:
        numbers += parts["offsets"].T[..., None] / 32
    np.testing.assert_allclose(numbers.reshape(5, -1), dequantize(flat, encoding), rtol=1e-5, atol=1e-6)
