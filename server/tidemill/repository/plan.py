"""What is to be served: every model version with its folder and configuration, faults included; loads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from tidemill.bundle.config import ModelConfig, load_config
from tidemill.errors import ConfigError
from tidemill.repository.layout import ModelFolder

__all__ = ["Plan", "make_plans"]

_OF_DERIVED_MODELS = {"base", "adapter"}


@dataclass(frozen=True, slots=True)
class Plan:
    """One model version to serve.

    Attributes:
        name: The model.
        version: The version number as text; "" if the folder has a fault.
        folder: The model's folder, which the files named in `config` are relative to.
        config: The content of model.yaml.
        bundle: The version's folder; None for a model that is run by its base.
        base: The plan of the base's same version, None for a model that has a bundle of its own.
        fault: Why it cannot be loaded; "" if it can be tried.
    """

    name: str
    version: str
    folder: Path
    config: ModelConfig = field(default_factory=ModelConfig)
    bundle: Path | None = None
    base: Plan | None = None
    fault: str = ""


def make_plans(folders: Sequence[ModelFolder]) -> list[Plan]:
    """Read every model's configuration and list its versions; a model that names a base has the base's versions."""
    own = [plan for folder in folders for plan in _own_plans(folder)]
    with_bundle: dict[str, list[Plan]] = {}
    for plan in own:
        if plan.bundle is not None:
            with_bundle.setdefault(plan.name, []).append(plan)
    return [resolved for plan in own for resolved in _resolved(plan, with_bundle)]


def _own_plans(folder: ModelFolder) -> list[Plan]:
    if folder.fault:
        return [Plan(folder.name, "", folder.path, fault=folder.fault)]
    try:
        config = load_config(folder.config_path)
    except ConfigError as error:
        return [Plan(folder.name, "", folder.path, fault=str(error))]
    if config.base is not None or not folder.versions:
        return [Plan(folder.name, "", folder.path, config=config, fault=_base_fault(folder, config))]
    return [Plan(folder.name, str(version), folder.path, config, bundle) for version, bundle in folder.versions.items()]


def _base_fault(folder: ModelFolder, config: ModelConfig) -> str:
    misplaced = config.model_fields_set - _OF_DERIVED_MODELS
    if config.base is None:
        return f"{folder.path} has no version folder (1, 2, ...) with a bundle, and its model.yaml names no base"
    if folder.versions:
        return f"model.yaml names the base {config.base!r}, but {folder.path} has versions of its own; remove one"
    if misplaced:
        return f"{', '.join(sorted(misplaced))} in model.yaml belongs into the model.yaml of its base {config.base!r}"
    return ""


def _resolved(plan: Plan, with_bundle: Mapping[str, Sequence[Plan]]) -> list[Plan]:
    base = plan.config.base
    if base is None or plan.fault:
        return [plan]
    if base in with_bundle:
        return [replace(plan, version=found.version, base=found) for found in with_bundle[base]]
    close = get_close_matches(base, with_bundle, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"models with a graph are {', '.join(with_bundle) or 'none'}"
    return [replace(plan, fault=f"its base {base!r} is no model with a graph of its own; {hint}")]
