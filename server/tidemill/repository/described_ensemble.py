"""How an ensemble is served, told in the field names of Triton's ModelConfig; knows no models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.bundle.config import ModelConfig
from tidemill.bundle.ensemble_config import EnsembleConfig
from tidemill.protocol.types import TensorSpec
from tidemill.repository.description import describe_tensors

__all__ = ["ENSEMBLE_PLATFORM", "describe_ensemble"]

ENSEMBLE_PLATFORM = "ensemble"


def describe_ensemble(
    name: str, tensors: tuple[Sequence[TensorSpec], Sequence[TensorSpec]], config: ModelConfig, limits: Sequence[int]
) -> dict[str, Any]:
    """What Triton's ModelConfig has a field for.

    Args:
        name: The ensemble.
        tensors: What callers send, and what they get.
        config: Its configuration.
        limits: The `max_batch_size` of each member; with all of them, rows of one symbol are a batch.
    """
    axes = {
        spec.shape[0] if spec.shape and isinstance(spec.shape[0], str) else "" for specs in tensors for spec in specs
    }
    most = min(limits, default=0) if len(axes) == 1 and "" not in axes else 0
    return {
        "name": name,
        "platform": ENSEMBLE_PLATFORM,
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": most,
        **describe_tensors(*tensors, batched=most > 0, labels=config.labels),
        "ensemble_scheduling": {"step": _steps(config.ensemble)},
    }


def _steps(config: EnsembleConfig | None) -> list[dict[str, Any]]:
    return [
        {
            "model_name": step.model,
            "model_version": step.version or -1,
            "input_map": step.inputs,
            "output_map": step.outputs,
        }
        for step in (config.steps if config else ())
    ]
