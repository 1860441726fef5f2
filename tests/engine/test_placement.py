"""What runs where is counted, and another provider than was asked for is taken only when that is allowed."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from tidemill.engine import Instance, InstanceOptions, Placement
from tidemill.engine.providers import check_providers
from tidemill.errors import LoadFailed

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
X = np.ones((1, 32), np.float32)


def test_nodes_are_counted_by_provider(stack):
    placement = Instance.open(stack, InstanceOptions(threads=1)).placement

    assert placement == Placement({CPU: 6})
    assert (placement.total, placement.left_over(CPU), placement.left_over(CUDA)) == (6, 0, 6)
    assert str(placement) == "CPUExecutionProvider 6"


def test_a_partial_placement_is_told():
    placement = Placement({CUDA: 210, CPU: 4})

    assert (placement.total, placement.left_over(CUDA)) == (214, 4)
    assert str(placement) == "CUDAExecutionProvider 210, CPUExecutionProvider 4"


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_falling_back_is_an_error_unless_allowed(stack, provider, caplog):
    with pytest.raises(LoadFailed, match=rf"(?i){provider}ExecutionProvider.*pip install 'tidemill"):
        Instance.open(stack, InstanceOptions((provider,)))
    assert caplog.records == []

    with caplog.at_level(logging.WARNING, "tidemill.engine"):
        instance = Instance.open(stack, InstanceOptions((provider,), allow_fallback=True))

    assert instance.providers == (CPU,)
    assert instance.run({"x": X})["y"].shape == (1, 32)
    assert [record.message.partition(",")[0] for record in caplog.records] == ["falling back"]


def test_a_provider_that_does_not_start_is_told_once(caplog):
    check_providers([CPU], [CUDA, CPU], allow_fallback=True)

    assert len(caplog.records) == 1
    assert "CUDAExecutionProvider was asked for and could not be started" in caplog.text
