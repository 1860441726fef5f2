"""What model.yaml says of the engine reaches it, and is wrong before anything is loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tidemill.bundle.config import ModelConfig
from tidemill.engine import ArtifactCache
from tidemill.errors import ConfigError, LoadFailed
from tidemill.repository.loading import open_instance

X = np.ones((1, 3), np.float32)


def config(**fields: object) -> ModelConfig:
    return ModelConfig.model_validate(fields)


@pytest.fixture
def folder(write_model: Callable[..., Path]) -> Path:
    return write_model("identity") / "identity" / "1"


def test_settings_reach_the_engine(folder: Path, tmp_path: Path) -> None:
    settings = config(prepack=False, shrink_above_bytes=1, threads=1, dims={"n": {"opt": 2, "max": 8}})
    cache = ArtifactCache(tmp_path / "artifacts")

    instances = [open_instance(folder, settings, cache) for _ in range(2)]

    assert [instance.artifact for instance in instances] == ["compiled", "hit"]
    np.testing.assert_array_equal(instances[1].run({"x": X})["y"], X)


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"providers": ["cuda"]}, LoadFailed, r"CUDAExecutionProvider.*tidemill\[gpu\]"),
        ({"providers": ["cudaa"]}, ConfigError, "did you mean 'cuda'"),
        (
            {"providers": ["cuda"], "provider_options": {"cuda": {"gpu_mem_limt": 1}}, "allow_fallback": True},
            ConfigError,
            "unknown option 'gpu_mem_limt' of provider cuda; did you mean 'gpu_mem_limit'",
        ),
        ({"dims": {"n": {"min": 4, "opt": 2, "max": 8}}}, ConfigError, "least <= usual <= greatest"),
    ],
)
def test_what_cannot_be_is_named(folder: Path, fields: dict[str, object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        open_instance(folder, config(**fields))


def test_falling_back_is_warned_of_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tidemill.engine"):
        instance = open_instance(folder, config(providers=["tensorrt"], allow_fallback=True))

    assert instance.providers == ("CPUExecutionProvider",)
    assert len(caplog.records) == 1
