"""Architectures without packaged weights: small ones against plain numpy, full ones by their graph and size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy_layers import (
    Weights,
    attention,
    batch_norm,
    conv1d,
    conv2d,
    gelu,
    gelu_tanh,
    layer_norm,
    linear,
    max_pool,
    seeded,
    silu,
    softmax,
)

from tidemill import nn
from tidemill.cli import main
from tidemill.engine import InferenceSession
from tidemill.graph import TensorType
from tidemill.graph.export import to_model
from tidemill.modelzoo import ARCHITECTURES, gpt2, mixtral_moe, resnet, vit, whisper

Run = Callable[..., Any]


def start(model: nn.Module, types: Sequence[TensorType]) -> tuple[Weights, Run]:
    """Seeded weights by name, and the model over them."""
    weights = seeded({name: tuple(map(int, weight.shape)) for name, weight in model.raw_state_dict().items()})
    graph = model.trace(*types)
    compiled = InferenceSession().load(graph, weights_registry=weights)
    return weights, lambda *inputs: compiled(*inputs)[0].to_numpy()


def check(run: Run, inputs: Sequence[Any], wanted: Any) -> None:
    """The answer is what numpy says, and the first row alone is the first row of the batch."""
    answer = run(*inputs)
    np.testing.assert_allclose(answer, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run(*(one[:1] for one in inputs))[0], answer[0], rtol=1e-4, atol=1e-5)


def noise(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("bottleneck", [False, True])
def test_resnet(bottleneck: bool) -> None:
    config = resnet.Config((2, 3), bottleneck, widths=(4, 6), classes=5)
    types = [TensorType(resnet.input_types()[0].dtype, ["batch", 3, 32, 32])]
    weights, run = start(resnet.ResNet(config), types)

    def block(x: Any, name: str, stride: int) -> Any:
        steps = [("1", 1, 0), ("2", stride, 1), ("3", 1, 0)] if bottleneck else [("1", stride, 1), ("2", 1, 1)]
        y = x
        for step, by, padding in steps:
            y = conv2d(np.maximum(y, 0), weights[f"{name}.conv{step}.weight"], stride=by, padding=padding)
            y = batch_norm(weights, f"{name}.bn{step}", y)
        if f"{name}.downsample.0.weight" in weights:
            shortcut = conv2d(x, weights[f"{name}.downsample.0.weight"], stride=stride)
            x = batch_norm(weights, f"{name}.downsample.1", shortcut)
        return np.maximum(y + x, 0)

    image = noise(2, 3, 32, 32)
    x = np.maximum(batch_norm(weights, "bn1", conv2d(image, weights["conv1.weight"], stride=2, padding=3)), 0)
    x = max_pool(x, 3, 2, 1)
    for number, count in enumerate(config.blocks, 1):
        for place in range(count):
            x = block(x, f"layer{number}.{place}", 2 if number > 1 and place == 0 else 1)
    check(run, [image], linear(weights, "fc", x.mean(axis=(2, 3))))


def test_vit() -> None:
    config = vit.Config(image=16, patch=4, hidden=12, layers=3, heads=3, mlp=20, classes=5)
    weights, run = start(vit.ViT(config), vit.input_types(config))
    image = noise(2, 3, 16, 16)
    patches = image.reshape(2, 3, 4, 4, 4, 4).transpose(0, 2, 4, 1, 3, 5).reshape(2, 16, 48)
    kernel = weights["patch_embed.proj.weight"].reshape(12, 48)
    embedded = patches @ kernel.T.astype(np.float64) + weights["patch_embed.proj.bias"]
    x = np.concatenate([np.repeat(weights["cls_token"], 2, axis=0), embedded], axis=1) + weights["pos_embed"]
    for name in (f"blocks.{number}" for number in range(config.layers)):
        parts = np.split(
            linear(weights, f"{name}.attn.qkv", layer_norm(weights, f"{name}.norm1", x, config.eps)), 3, -1
        )
        x = x + linear(weights, f"{name}.attn.proj", attention(*parts, config.heads))
        wide = gelu(linear(weights, f"{name}.mlp.fc1", layer_norm(weights, f"{name}.norm2", x, config.eps)))
        x = x + linear(weights, f"{name}.mlp.fc2", wide)
    check(run, [image], linear(weights, "head", layer_norm(weights, "norm", x, config.eps)[:, 0]))


def test_gpt2() -> None:
    config = gpt2.Config(vocab_size=40, n_positions=16, n_embd=12, n_layer=3, n_head=3)
    weights, run = start(gpt2.GPT2(config), [gpt2.input_type()])

    def project(name: str, x: Any) -> Any:
        return x @ np.asarray(weights[f"{name}.weight"], np.float64) + weights[f"{name}.bias"]

    ids = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    x = weights["wte.weight"][ids] + weights["wpe.weight"][: ids.shape[1]]
    for name in (f"h.{number}" for number in range(config.n_layer)):
        parts = np.split(project(f"{name}.attn.c_attn", layer_norm(weights, f"{name}.ln_1", x)), 3, -1)
        x = x + project(f"{name}.attn.c_proj", attention(*parts, config.n_head, causal=True))
        wide = gelu_tanh(project(f"{name}.mlp.c_fc", layer_norm(weights, f"{name}.ln_2", x)))
        x = x + project(f"{name}.mlp.c_proj", wide)
    check(run, [ids], layer_norm(weights, "ln_f", x) @ weights["wte.weight"].T)
    # A token sees the earlier ones only, so padding after a prompt changes nothing before it.
    np.testing.assert_allclose(run(ids[:, :3]), run(ids)[:, :3], rtol=1e-4, atol=1e-5)


class Whisper:
    """Both halves in numpy."""

    config = whisper.Config(mels=5, audio_length=6, text_length=8, vocabulary=30, size=12, heads=3, layers=2)

    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    def look(self, name: str, x: Any, source: Any, causal: bool = False) -> Any:
        given = {"query": x, "key": source, "value": source}
        parts = [linear(self.weights, f"{name}.{part}", y) for part, y in given.items()]
        return linear(self.weights, f"{name}.out", attention(*parts, self.config.heads, causal))

    def block(self, name: str, x: Any, speech: Any = None) -> Any:
        normal = layer_norm(self.weights, f"{name}.attn_ln", x)
        x = x + self.look(f"{name}.attn", normal, normal, causal=speech is not None)
        if speech is not None:
            x = x + self.look(f"{name}.cross_attn", layer_norm(self.weights, f"{name}.cross_attn_ln", x), speech)
        wide = gelu(linear(self.weights, f"{name}.mlp.0", layer_norm(self.weights, f"{name}.mlp_ln", x)))
        return x + linear(self.weights, f"{name}.mlp.2", wide)


def test_whisper_encoder() -> None:
    config = Whisper.config
    weights, run = start(whisper.Encoder(config), whisper.input_types(config)["encoder"])
    mel = noise(2, config.mels, 2 * config.audio_length)
    x = gelu(conv1d(mel, weights["conv1.weight"], weights["conv1.bias"], padding=1))
    x = gelu(conv1d(x, weights["conv2.weight"], weights["conv2.bias"], stride=2, padding=1)).transpose(0, 2, 1)
    x = x + weights["positional_embedding"]
    for number in range(config.layers):
        x = Whisper(weights).block(f"blocks.{number}", x)
    check(run, [mel], layer_norm(weights, "ln_post", x))


def test_whisper_decoder() -> None:
    config = Whisper.config
    weights, run = start(whisper.Decoder(config), whisper.input_types(config)["decoder"])
    tokens, speech = np.array([[3, 1, 4], [1, 5, 9]]), noise(2, config.audio_length, config.size)
    x = weights["token_embedding.weight"][tokens] + weights["positional_embedding"][:3]
    for number in range(config.layers):
        x = Whisper(weights).block(f"blocks.{number}", x, speech)
    check(run, [tokens, speech], layer_norm(weights, "ln", x) @ weights["token_embedding.weight"].T)


def test_mixtral_moe() -> None:
    config = mixtral_moe.Config(hidden=6, intermediate=10, experts=5)
    weights, run = start(mixtral_moe.SparseMoE(config), [mixtral_moe.input_type(config)])
    hidden = noise(2, 7, 6)
    scores = linear(weights, "gate", hidden)
    mixed = np.zeros((2, 7, 6))
    for place in np.ndindex(2, 7):
        best = np.argsort(-scores[place])[: config.chosen]
        for share, expert in zip(softmax(scores[place][best]), best, strict=True):
            name = f"experts.{expert}"
            wide = silu(linear(weights, f"{name}.w1", hidden[place])) * linear(weights, f"{name}.w3", hidden[place])
            mixed[place] += share * linear(weights, f"{name}.w2", wide)
    check(run, [hidden], mixed)


FULL = {
    "resnet-18": (resnet.ResNet(resnet.RESNET_18), resnet.input_types(), {"Block": 2}),
    "resnet-50": (
        resnet.ResNet(resnet.RESNET_50),
        resnet.input_types(),
        {"Block": 2, "Block_1": 3, "Block_2": 5, "Block_3": 2},
    ),
    "vit-tiny": (vit.ViT(), vit.input_types(vit.Config()), {"Block": 12}),
    "gpt2": (gpt2.GPT2(), [gpt2.input_type()], {"Block": 12}),
    "whisper-encoder": (whisper.Encoder(), whisper.input_types(whisper.Config())["encoder"], {"EncoderBlock": 4}),
    "whisper-decoder": (whisper.Decoder(), whisper.input_types(whisper.Config())["decoder"], {"DecoderBlock": 4}),
    "mixtral-moe": (mixtral_moe.SparseMoE(), [mixtral_moe.input_type(mixtral_moe.Config())], {"Expert": 8}),
}
PARAMETERS = {"resnet-18": 11_689_512, "resnet-50": 25_557_032, "vit-tiny": 5_717_416, "gpt2": 124_439_808}
"""As published."""


@pytest.mark.parametrize("name", FULL)
def test_the_full_size_is_a_small_graph_with_shared_blocks(name: str) -> None:
    module, types, shared = FULL[name]
    graph = module.trace(*types)
    model = to_model(graph)
    assert len(model.SerializeToString()) < 200_000
    assert {function.name: graph.functions[function.name].calls for function in model.functions} == shared


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_full_size_has_as_many_parameters_as_published(name: str) -> None:
    weights = FULL[name][0].raw_state_dict()
    learned = {key: weight for key, weight in weights.items() if ".running_" not in f".{key}"}
    assert sum(int(np.prod(tuple(map(int, weight.shape)))) for weight in learned.values()) == PARAMETERS[name]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_building_asks_for_a_checkpoint(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", name, "--repository", str(tmp_path)]) == 1
    assert "--weights" in capsys.readouterr().err
