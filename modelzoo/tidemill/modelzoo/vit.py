"""Vision Transformer: a picture as a sentence of 16x16 patches (Dosovitskiy et al., 2021).

Names are timm's. No package carries weights; give `build` a checkpoint. The default is ViT-Tiny.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, Weight, ops
from tidemill.modelzoo.package_files import required_weights
from tidemill.modelzoo.zoo_model import Inputs

__all__ = ["Config", "ViT", "build", "example_inputs"]


@dataclass(frozen=True)
class Config:
    """The sizes."""

    image: int = 224
    patch: int = 16
    hidden: int = 192
    layers: int = 12
    heads: int = 3
    mlp: int = 768
    classes: int = 1000
    eps: float = 1e-6

    @property
    def patches(self) -> int:
        """How many a picture has."""
        return (self.image // self.patch) ** 2


class PatchEmbed(nn.Module):
    """Each patch projected: a convolution that never looks at a pixel twice."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        shape = (config.patch, 3, config.hidden)
        self.proj = nn.Conv2d(*shape, DType.float32, stride=config.patch, has_bias=True, permute=True)

    def __call__(self, image: TensorValue) -> TensorValue:
        """[batch, 3, height, width] -> [batch, patches, hidden]."""
        return ops.transpose(ops.flatten(self.proj(image), 2), 1, 2)


class Attention(nn.Module):
    """Every patch looks at every patch; queries, keys and values are one weight."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = _linear(config.hidden, 3 * config.hidden)
        self.proj = _linear(config.hidden, config.hidden)

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, length, hidden] -> the same."""
        batch, length, hidden = x.shape
        parts = self.qkv(x).reshape([batch, length, 3, self.heads, hidden // self.heads]).permute([2, 0, 3, 1, 4])
        mixed = ops.attention(parts[0], parts[1], parts[2])
        return self.proj(mixed.permute([0, 2, 1, 3]).reshape(x.shape))


class MLP(nn.Module):
    """fc2(gelu(fc1(x)))."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.fc1 = _linear(config.hidden, config.mlp)
        self.fc2 = _linear(config.mlp, config.hidden)

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, length, hidden] -> the same."""
        return self.fc2(ops.gelu(self.fc1(x)))


class Block(nn.Module):
    """Attention and MLP, each on what is normalised, each added; all of them are one function."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm1, self.attn = _norm(config), Attention(config)
        self.norm2, self.mlp = _norm(config), MLP(config)

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, length, hidden] -> the same."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Patches behind a class token, positions added, blocks; the class token is what is classified."""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        config = config or Config()
        self.cls_token = Weight("cls_token", DType.float32, (1, 1, config.hidden))
        self.pos_embed = Weight("pos_embed", DType.float32, (1, config.patches + 1, config.hidden))
        self.patch_embed = PatchEmbed(config)
        self.blocks = nn.Sequential([Block(config) for _ in range(config.layers)])
        self.norm = _norm(config)
        self.head = _linear(config.hidden, config.classes)

    def __call__(self, image: TensorValue) -> dict[str, TensorValue]:
        """float32 [batch, 3, height, width], from -1 to 1 -> logits [batch, classes]."""
        patches = self.patch_embed(image)
        token = ops.broadcast_to(self.cls_token, (image.shape[0], *self.cls_token.shape[1:]))
        x = self.blocks(ops.concat([token, patches], axis=1) + self.pos_embed)
        return {"logits": self.head(self.norm(x)[:, 0])}


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/vit-tiny/1` over a checkpoint of timm's `vit_tiny_patch16_224`."""
    bundle = ViT().bundle(*input_types(Config()), weights=required_weights("vit-tiny", weights), name="vit-tiny")
    bundle.write(repository / "vit-tiny" / "1")


def example_inputs() -> Inputs:
    """Noise of the right size."""
    size = Config().image
    return {"image": np.random.default_rng(0).standard_normal((1, 3, size, size)).astype(np.float32)}


def input_types(config: Config) -> list[TensorType]:
    """The type of the picture."""
    return [TensorType(DType.float32, ["batch", 3, config.image, config.image], DeviceRef.CPU())]


def _linear(in_dim: int, out_dim: int) -> nn.Linear:
    return nn.Linear(in_dim, out_dim, DType.float32, has_bias=True)


def _norm(config: Config) -> nn.LayerNorm:
    return nn.LayerNorm(config.hidden, [DeviceRef.CPU()], DType.float32, eps=config.eps)
