from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidemill import nn
from tidemill.dtype import DType
from tidemill.engine import Instance
from tidemill.graph import DeviceRef, TensorType, TensorValue
from tidemill.protocol import Array


def packed(bits: int, out: int, size: int, block: int, offsets: bool) -> tuple[dict[str, Array], Array]:
    """Random weights, and the matrix that they stand for."""
    random = np.random.default_rng(bits)
    codes = random.integers(0, 1 << bits, (out, size // block, block), np.uint8)
    weights = {"scales": random.uniform(0.01, 0.1, (out, size // block)).astype(np.float32)}
    weights["codes"] = codes if bits == 8 else codes[..., ::2] | codes[..., 1::2] << 4
    matrix = (codes - float(1 << (bits - 1))) * weights["scales"][..., None]
    if offsets:
        weights["offsets"] = random.standard_normal((size // block, out), np.float32)
        matrix = matrix + weights["offsets"].T[..., None] / block
    return weights, matrix.reshape(out, size)


def run(layer: nn.Module, weights: dict[str, Array], *types: TensorType, **feed: Array) -> Array:
    with tempfile.TemporaryDirectory() as folder:
        bundle = layer.bundle(*types, weights=weights, name="x", input_names=list(feed))
        instance = Instance.open(bundle.write(Path(folder) / "1"))
        (result,) = instance.run(feed).values()
    return result


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [32, 64])
@pytest.mark.parametrize("offsets", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_products_are_those_of_the_matrix(bits: int, block: int, offsets: bool, exact: bool) -> None:
    layer = nn.BlockLinear(128, 24, bits, block, offsets, exact=exact)
    weights, matrix = packed(bits, 24, 128, block, offsets)
    x = np.random.default_rng(1).standard_normal((2, 3, 128), np.float32)
    given = TensorType(DType.float32, ["batch", "seq", 128], DeviceRef.CPU())
    product = run(layer, weights, given, x=x)
    expected = x @ matrix.T
    # Rounded inputs are off by up to 1/254 of the largest of their block.
    bound = 1e-4 if exact else 0.01
    assert np.linalg.norm(product - expected) <= bound * np.linalg.norm(expected)


class Rows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.BlockLinear(64, 10, bits=8)

    def __call__(self, places: TensorValue) -> TensorValue:
        return self.table.rows(places)


def test_rows_are_those_of_the_matrix() -> None:
    weights, matrix = packed(8, 10, 64, 32, offsets=False)
    places = np.array([[3, 9, 0]])
    named = {f"table.{name}": array for name, array in weights.items()}
    rows = run(Rows(), named, TensorType(DType.int64, ["batch", "seq"], DeviceRef.CPU()), places=places)
    np.testing.assert_allclose(rows, matrix[places], rtol=1e-6)


@pytest.mark.parametrize("sizes", [{"in_dim": 100}, {"bits": 5}, {"block_size": 48}])
def test_sizes_that_no_kernel_takes(sizes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected 4 or 8 bits"):
        nn.BlockLinear(**{"in_dim": 96, "out_dim": 4} | sizes)
