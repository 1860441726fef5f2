"""MTCNN: three networks that find faces, each sterner than the one before (Zhang et al., 2016; facenet-pytorch, MIT).

P-Net looks at every place of a picture at several sizes, R-Net and O-Net at what is left; `mtcnn_pipeline` is what a
caller does between them. Names are those of the three checkpoints.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, Weight, ops
from tidemill.modelzoo.package_files import package_file
from tidemill.modelzoo.settings import write_settings
from tidemill.modelzoo.zoo_model import Inputs

__all__ = ["ONet", "PNet", "RNet", "build", "example_inputs"]


class PReLU(nn.Module):
    """x, or a learned share of it where it is negative; one share for each channel, which is on axis 1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = Weight("weight", DType.float32, (channels,))

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, channels, ...] -> the same."""
        return ops.prelu(x, ops.reshape(self.weight, [-1] + [1] * (x.rank - 2)))


class PNet(nn.Module):
    """Whether there is a face in each 12x12 window, two pixels apart, and how far its box is off."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1 = _conv(3, 3, 10), PReLU(10)
        self.conv2, self.prelu2 = _conv(3, 10, 16), PReLU(16)
        self.conv3, self.prelu3 = _conv(3, 16, 32), PReLU(32)
        self.conv4_1 = _conv(1, 32, 2)
        self.conv4_2 = _conv(1, 32, 4)

    def __call__(self, image: TensorValue) -> dict[str, TensorValue]:
        """float32 [batch, 3, height, width], (value - 127.5) / 128 -> offsets [batch, 4, ...], probability [..., 2]."""
        x = _pool(2, self.prelu1(self.conv1(image)))
        x = self.prelu3(self.conv3(self.prelu2(self.conv2(x))))
        return {"offsets": self.conv4_2(x), "probability": _softmax(self.conv4_1(x))}


class RNet(nn.Module):
    """The same for one 24x24 window."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1 = _conv(3, 3, 28), PReLU(28)
        self.conv2, self.prelu2 = _conv(3, 28, 48), PReLU(48)
        self.conv3, self.prelu3 = _conv(2, 48, 64), PReLU(64)
        self.dense4, self.prelu4 = _linear(576, 128), PReLU(128)
        self.dense5_1 = _linear(128, 2)
        self.dense5_2 = _linear(128, 4)

    def __call__(self, image: TensorValue) -> dict[str, TensorValue]:
        """float32 [batch, 3, 24, 24] -> offsets [batch, 4], probability [batch, 2] of no face and of a face."""
        x = _pool(3, self.prelu1(self.conv1(image)))
        x = _pool(3, self.prelu2(self.conv2(x)))
        x = self.prelu4(self.dense4(_flat(self.prelu3(self.conv3(x)))))
        return {"offsets": self.dense5_2(x), "probability": _softmax(self.dense5_1(x))}


class ONet(nn.Module):
    """The same for one 48x48 window, and where eyes, nose and corners of the mouth are."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1 = _conv(3, 3, 32), PReLU(32)
        self.conv2, self.prelu2 = _conv(3, 32, 64), PReLU(64)
        self.conv3, self.prelu3 = _conv(3, 64, 64), PReLU(64)
        self.conv4, self.prelu4 = _conv(2, 64, 128), PReLU(128)
        self.dense5, self.prelu5 = _linear(1152, 256), PReLU(256)
        self.dense6_1 = _linear(256, 2)
        self.dense6_2 = _linear(256, 4)
        self.dense6_3 = _linear(256, 10)

    def __call__(self, image: TensorValue) -> dict[str, TensorValue]:
        """float32 [batch, 3, 48, 48] -> offsets [batch, 4], landmarks [batch, 10], five x then five y, probability."""
        x = _pool(3, self.prelu1(self.conv1(image)))
        x = _pool(3, self.prelu2(self.conv2(x)))
        x = _pool(2, self.prelu3(self.conv3(x)))
        x = self.prelu5(self.dense5(_flat(self.prelu4(self.conv4(x)))))
        return {"offsets": self.dense6_2(x), "landmarks": self.dense6_3(x), "probability": _softmax(self.dense6_1(x))}


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `mtcnn-pnet`, `mtcnn-rnet` and `mtcnn-onet` into the repository.

    Args:
        repository: The folder to write into.
        weights: A folder with pnet.pt, rnet.pt and onet.pt; that of the package by default.

    Raises:
        ModuleNotFoundError: The package that carries the trained weights is not installed.
    """
    nets: dict[str, tuple[nn.Module, int | str, int | str]] = {
        "pnet": (PNet(), "height", "width"),
        "rnet": (RNet(), 24, 24),
        "onet": (ONet(), 48, 48),
    }
    for name, (net, *size) in nets.items():
        image = TensorType(DType.float32, ["batch", 3, *size], DeviceRef.CPU())
        trained = f"{weights}/{name}.pt" if weights else package_file("facenet_pytorch", f"data/{name}.pt")
        bundle = net.bundle(image, weights=trained, name=f"mtcnn-{name}")
        bundle.write(repository / f"mtcnn-{name}" / "1")
    # P-Net's smallest picture; with sizes of 1 there would be nothing to try it on.
    write_settings(repository / "mtcnn-pnet" / "model.yaml", "warmup:\n  - {height: 12, width: 12}\n")


def example_inputs() -> Inputs:
    """Noise, for P-Net."""
    return {"image": np.random.default_rng(0).standard_normal((1, 3, 24, 24)).astype(np.float32)}


def _conv(kernel: int, channels_in: int, channels_out: int) -> nn.Conv2d:
    return nn.Conv2d(kernel, channels_in, channels_out, DType.float32, has_bias=True, permute=True)


def _linear(in_dim: int, out_dim: int) -> nn.Linear:
    return nn.Linear(in_dim, out_dim, DType.float32, has_bias=True)


def _pool(kernel: int, x: TensorValue) -> TensorValue:
    pooled: TensorValue = nn.MaxPool2d(kernel, 2, ceil_mode=True, permute=True)(x)
    return pooled


def _flat(x: TensorValue) -> TensorValue:
    """[batch, channels, height, width] -> [batch, width * height * channels], the order of the first, Matlab model."""
    return ops.flatten(ops.permute(x, [0, 3, 2, 1]), 1)


def _softmax(x: TensorValue) -> TensorValue:
    """Over axis 1."""
    return ops.softmax(x, 1)
