from __future__ import annotations

import numpy as np
import pytest

from tidemill.dtype import DType
from tidemill.weights import WeightData

W = np.arange(3, dtype=np.float32)


def test_describes_and_aliases_an_array() -> None:
    data = WeightData.from_numpy(W, "w")
    assert (data.name, data.dtype, data.shape) == ("w", DType.float32, (3,))
    assert np.shares_memory(data.to_buffer().to_numpy(), W)
    assert np.shares_memory(np.from_dlpack(data), W)


def test_astype_converts_only_when_needed() -> None:
    data = WeightData.from_numpy(W, "w")
    assert data.astype(DType.float32) is data
    half = data.astype(DType.bfloat16)
    assert half.dtype is DType.bfloat16
    assert half.to_buffer().dtype is DType.bfloat16


def test_encoded_weights_are_not_cast() -> None:
    data = WeightData(np.zeros(18, np.uint8), "w", DType.uint8, (18,), "Q4_0")
    with pytest.raises(ValueError, match="'w' is encoded as Q4_0"):
        data.astype(DType.float32)
