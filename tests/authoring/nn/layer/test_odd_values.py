"""Values that almost fit."""

from __future__ import annotations

import numpy as np
import pytest

from tidemill import nn
from tidemill.dtype import DType
from tidemill.engine import InferenceSession
from tidemill.graph import DeviceRef, TensorType, TensorValue, Weight
from tidemill.weights import WeightData


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = Weight("scale", DType.float32, (), DeviceRef.CPU())

    def __call__(self, x: TensorValue) -> TensorValue:
        return x * self.scale


def test_one_element_for_a_scalar_is_the_scalar() -> None:
    model = Scaled()
    model.load_state_dict({"scale": WeightData.from_numpy(np.array([3], np.float32), "scale")})
    x = TensorType(DType.float32, ["n"], DeviceRef.CPU())
    (y,) = model.compile(x, session=InferenceSession()).execute(np.array([1, 2], np.float32))
    np.testing.assert_array_equal(y.to_numpy(), [3, 6])


def test_a_dtype_that_no_tensor_has_is_told_by_the_weights_name() -> None:
    with pytest.raises(ValueError, match=r"'scale' had different dtype \(expected=.*float32, actual=complex64\)"):
        Scaled().load_state_dict({"scale": np.array(1, np.complex64)})
