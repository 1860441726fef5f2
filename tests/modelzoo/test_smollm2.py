"""SmolLM2 against transformers' LlamaForCausalLM, and a small one of its kind with random weights against itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tokenizers import Tokenizer

from tidemill.engine import Instance
from tidemill.modelzoo.smollm2 import LLAMA_CPP_NAMES, Config, SmolLM2, empty_past, generate, input_types

SMALL = Config(vocab_size=64, hidden_size=24, intermediate_size=32, layers=3, heads=3, kv_heads=1, head_dim=8)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    """A model of the same class, small enough for every run."""
    model, random = SmolLM2(SMALL), np.random.default_rng(0)
    weights = {name: random.standard_normal(value.shape, np.float32) for name, value in model.state_dict().items()}
    bundle = model.bundle(*input_types(SMALL), weights=weights, name="small")
    return Instance.open(bundle.write(tmp_path_factory.mktemp("small") / "1"))


def read(run: Callable[..., Any], tokens: Any, config: Config = SMALL, mask: Any = None) -> Any:
    """The model's answer to tokens [batch, seq] without a past."""
    ids = np.array(tokens)
    mask = np.ones_like(ids) if mask is None else np.array(mask)
    return run({"input_ids": ids, "attention_mask": mask, **empty_past(config, len(ids))})


def test_with_and_without_a_cache_are_equal(small: Instance) -> None:
    prompt = [5, 9, 2, 40]
    cached = list(generate(small.run, prompt, 6, SMALL))
    tokens = list(prompt)
    for token in cached:
        assert int(read(small.run, [tokens])["logits"].argmax()) == token
        tokens.append(token)


def test_padding_after_a_prompt_changes_nothing(small: Instance) -> None:
    prompts = [[5, 9, 2, 40, 7], [3], [8, 8, 1]]
    width = max(map(len, prompts))
    ids = [prompt + [0] * (width - len(prompt)) for prompt in prompts]
    mask = [[1] * len(prompt) + [0] * (width - len(prompt)) for prompt in prompts]
    together = read(small.run, ids, mask=mask)
    for row, prompt in enumerate(prompts):
        alone = read(small.run, [prompt])
        np.testing.assert_allclose(together["logits"][row], alone["logits"][0], rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(together["keys"][row, :, :, : len(prompt)], alone["keys"][0], atol=1e-4)


def test_a_past_with_holes_counts_tokens_only(small: Instance) -> None:
    first = read(small.run, [[5, 9, 0, 0]], mask=[[1, 1, 0, 0]])
    past = {"past_keys": first["keys"], "past_values": first["values"], "past_mask": np.array([[1, 1, 0, 0]])}
    ids = np.array([[2, 40]])
    answer = small.run({"input_ids": ids, "attention_mask": np.ones_like(ids), **past})
    whole = read(small.run, [[5, 9, 2, 40]])
    np.testing.assert_allclose(answer["logits"], whole["logits"], rtol=1e-4, atol=1e-3)


def test_llama_cpps_names_cover_every_weight() -> None:
    names = {name.replace(".0.", ".*.") for name in SmolLM2(SMALL).raw_state_dict() if ".1." not in name}
    assert set(LLAMA_CPP_NAMES) == {name for name in names if ".2." not in name}


def test_one_function_for_thirty_layers(built: Callable[[str], Path]) -> None:
    graph = onnx.load(built("smollm2") / "smollm2" / "1" / "model.onnx", load_external_data=False)
    assert [function.name for function in graph.functions] == ["TransformerBlock"]
    assert sum(node.op_type == "TransformerBlock" for node in graph.graph.node) == 30


@pytest.mark.parametrize("number", range(3))
def test_the_greedy_tokens_are_transformers(
    number: int, open_model: Callable[..., Any], expected: Callable[[str], Any]
) -> None:
    case, run = expected("smollm2")["cases"][number], open_model("smollm2").run
    logits = read(run, [case["input_ids"]], Config())["logits"][0]
    assert logits.argsort()[::-1][:5].tolist() == case["last_logits_top5_ids"]
    np.testing.assert_allclose(logits[case["last_logits_top5_ids"]], case["last_logits_top5"], atol=2e-4)
    np.testing.assert_allclose(logits[:8], case["last_logits_first8"], atol=2e-4)
    assert list(generate(run, case["input_ids"], 24)) == case["greedy_new_ids"]


def test_the_tokenizer_is_transformers(built: Callable[[str], Path], expected: Callable[[str], Any]) -> None:
    tokenizer = Tokenizer.from_file(str(built("smollm2") / "smollm2" / "tokenizer.json"))
    for case in expected("smollm2")["cases"]:
        assert tokenizer.encode(case["prompt"]).ids == case["input_ids"]
        assert tokenizer.decode(case["greedy_new_ids"]) == case["greedy_text"]
    assert len(tokenizer.encode(expected("smollm2")["text_for_nll"]).ids) == expected("smollm2")["text_n_tokens"]
    assert tokenizer.encode("<|im_start|>user").ids[0] == 1
