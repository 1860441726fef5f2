"""Providers are what was asked for, or the load fails."""

from __future__ import annotations

import pytest

from tidemill.engine.providers import check_available, check_providers, resolve_providers
from tidemill.errors import ConfigError, LoadFailed

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"


@pytest.mark.parametrize(
    ("requested", "full"),
    [
        ([], (CPU,)),
        (["cpu"], (CPU,)),
        (["tensorrt", "cuda", "cpu"], (TENSORRT, CUDA, CPU)),
        ([CUDA], (CUDA,)),
        (["cuda", CUDA], (CUDA,)),
    ],
)
def test_short_and_full_names(requested, full):
    assert resolve_providers(requested) == full


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cudaa", "unknown provider 'cudaa', did you mean 'cuda'?"),
        ("CUDAExecutionProvidr", "did you mean 'CUDAExecutionProvider'?"),
        ("abacus", "Known are cpu, cuda, tensorrt, "),
    ],
)
def test_unknown_names_are_config_errors(name, text):
    with pytest.raises(ConfigError) as caught:
        resolve_providers([name])
    assert text in str(caught.value)


def test_a_silent_fall_back_is_caught():
    check_providers([CUDA, CPU], [CUDA])

    with pytest.raises(LoadFailed, match=r"TensorrtExecutionProvider was asked for.*runs on CUDA.*NVIDIA driver"):
        check_providers([CUDA, CPU], [TENSORRT, CUDA])


def test_a_build_without_the_provider_is_named():
    with pytest.raises(LoadFailed, match=r"has no CUDAExecutionProvider.*tidemill\[gpu\]"):
        check_available([CUDA], [CPU])
