"""ResNet-18 and ResNet-50: a picture to 1,000 classes, by layers that learn what to add (He et al., 2015).

Names are torchvision's. No package carries weights; give `build` a checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, ops
from tidemill.modelzoo.package_files import required_weights
from tidemill.modelzoo.zoo_model import Inputs

__all__ = ["RESNET_18", "RESNET_50", "Config", "ResNet", "build_18", "build_50", "example_inputs"]

SIZE = 224


@dataclass(frozen=True)
class Config:
    """How many blocks each stage has, of which width, and whether blocks are bottlenecks of four times that width."""

    blocks: tuple[int, ...]
    bottleneck: bool
    widths: tuple[int, ...] = (64, 128, 256, 512)
    classes: int = 1000


RESNET_18 = Config((2, 2, 2, 2), bottleneck=False)
RESNET_50 = Config((3, 4, 6, 3), bottleneck=True)


class Block(nn.Module):
    """What came in plus what two or three convolutions make of it; `downsample` fits what came in, where needed."""

    def __init__(self, channels_in: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        channels_out = width * 4 if bottleneck else width
        first, second = ((1, 1), (3, stride)) if bottleneck else ((3, stride), (3, 1))
        self.conv1, self.bn1 = _conv(first[0], channels_in, width, first[1]), nn.BatchNorm(width)
        self.conv2, self.bn2 = _conv(second[0], width, width, second[1]), nn.BatchNorm(width)
        self.bottleneck, self.fits = bottleneck, stride == 1 and channels_in == channels_out
        if bottleneck:
            self.conv3, self.bn3 = _conv(1, width, channels_out), nn.BatchNorm(channels_out)
        if not self.fits:
            shortcut = _conv(1, channels_in, channels_out, stride)
            self.downsample = nn.Sequential([shortcut, nn.BatchNorm(channels_out)])

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, channels_in, height, width] -> [batch, channels_out, height / stride, width / stride]."""
        y = self.bn2(self.conv2(ops.relu(self.bn1(self.conv1(x)))))
        if self.bottleneck:
            y = self.bn3(self.conv3(ops.relu(y)))
        return ops.relu(y + (x if self.fits else self.downsample(x)))


class ResNet(nn.Module):
    """A wide first look, four stages of blocks, mean over the picture, classifier."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        channels = config.widths[0]
        self.conv1, self.bn1 = _conv(7, 3, channels, 2), nn.BatchNorm(channels)
        self.stages = len(config.blocks)
        for number, (count, width) in enumerate(zip(config.blocks, config.widths, strict=True), 1):
            blocks = []
            for place in range(count):
                stride = 2 if number > 1 and place == 0 else 1
                blocks.append(Block(channels, width, stride, config.bottleneck))
                channels = width * 4 if config.bottleneck else width
            setattr(self, f"layer{number}", nn.Sequential(blocks))
        self.fc = nn.Linear(channels, config.classes, DType.float32, has_bias=True)

    def __call__(self, image: TensorValue) -> dict[str, TensorValue]:
        """float32 [batch, 3, height, width], normalised by ImageNet's mean and deviation -> logits [batch, classes]."""
        x = ops.relu(self.bn1(self.conv1(image)))
        x = nn.MaxPool2d(3, 2, padding=1, permute=True)(x)
        for number in range(1, self.stages + 1):
            x = self.sublayers[f"layer{number}"](x)
        return {"logits": self.fc(ops.squeeze(ops.mean(ops.flatten(x, 2)), -1))}


def build_18(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/resnet-18/1` over a checkpoint of torchvision's."""
    _build(repository, "resnet-18", RESNET_18, weights)


def build_50(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/resnet-50/1` over a checkpoint of torchvision's."""
    _build(repository, "resnet-50", RESNET_50, weights)


def example_inputs() -> Inputs:
    """Noise of the right size."""
    return {"image": np.random.default_rng(0).standard_normal((1, 3, SIZE, SIZE)).astype(np.float32)}


def input_types() -> list[TensorType]:
    """The type of the picture."""
    return [TensorType(DType.float32, ["batch", 3, SIZE, SIZE], DeviceRef.CPU())]


def _build(repository: Path, name: str, config: Config, weights: str | PathLike[str] | None) -> None:
    bundle = ResNet(config).bundle(*input_types(), weights=required_weights(name, weights), name=name)
    bundle.write(repository / name / "1")


def _conv(kernel: int, channels_in: int, channels_out: int, stride: int = 1) -> nn.Conv2d:
    shape = (kernel, channels_in, channels_out)
    return nn.Conv2d(*shape, DType.float32, stride=stride, padding=kernel // 2, permute=True)
