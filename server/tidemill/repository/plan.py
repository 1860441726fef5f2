"""What is to be served: every model version with its folder and configuration, faults included; loads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from tidemill.bundle.config import ModelConfig
from tidemill.repository.ensemble_plan import ensemble_fault
from tidemill.repository.layout import ModelFolder
from tidemill.repository.source import Source, read_source

__all__ = ["Plan", "count_wanted", "make_plans", "plans_of"]

_OF_DERIVED_MODELS = {"base", "adapter", "labels", "response_cache", "sequence"}


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
        fingerprint: What tells whether it has to be loaded again.
    """

    name: str
    version: str
    folder: Path
    config: ModelConfig = field(default_factory=ModelConfig)
    bundle: Path | None = None
    base: Plan | None = None
    fault: str = ""
    fingerprint: object = None


def make_plans(folders: Sequence[ModelFolder]) -> list[Plan]:
    """Read every model's configuration and list the versions to serve; a model that names a base has the base's."""
    sources = {folder.name: read_source(folder) for folder in folders}
    return [plan for source in sources.values() for plan in plans_of(source, sources)]


def plans_of(source: Source, sources: Mapping[str, Source]) -> list[Plan]:
    """The versions of a model that its policy allows for, newest first; one plan with a fault if there are none.

    Args:
        source: The model.
        sources: The others, among which is its base if it has one.
    """
    if fault := source.fault or _fault(source, sources):
        return [Plan(source.name, "", source.folder.path, source.config, fault=fault)]
    if source.config.ensemble or source.config.pipeline:
        return [Plan(source.name, "1", source.folder.path, source.config, fingerprint=source.fingerprint())]
    if source.config.base is None:
        return _own_plans(source)
    return [
        Plan(source.name, base.version, source.folder.path, source.config, base=base, fingerprint=source.fingerprint())
        for base in plans_of(sources[source.config.base], sources)
    ]


def count_wanted(plans: Sequence[Plan]) -> int:
    """How many of a model's plans are to be served: those that load of the first ones."""
    latest = (plans[0].base or plans[0]).config.version_policy.latest if plans else None
    return len(plans) if latest is None else min(latest, len(plans))


def _own_plans(source: Source) -> list[Plan]:
    chosen = source.config.version_policy.specific or source.folder.versions
    return [
        Plan(
            source.name,
            str(version),
            source.folder.path,
            source.config,
            bundle=source.folder.versions.get(version),
            fault=""
            if version in source.folder.versions
            else f"{source.folder.path} has no complete version {version}",
            fingerprint=source.fingerprint(version),
        )
        for version in sorted(chosen, reverse=True)
    ]


def _fault(source: Source, sources: Mapping[str, Source]) -> str:
    folder, config = source.folder, source.config
    if config.ensemble or config.pipeline:
        return ensemble_fault(source, sources)
    if config.base is None:
        fault = f"{folder.path} has no version folder (1, 2, ...) with a bundle, and its model.yaml names no base"
        return "" if folder.versions else fault
    if folder.versions:
        return f"model.yaml names the base {config.base!r}, but {folder.path} has versions of its own; remove one"
    if misplaced := config.model_fields_set - _OF_DERIVED_MODELS:
        return f"{', '.join(sorted(misplaced))} in model.yaml belongs into the model.yaml of its base {config.base!r}"
    return _base_fault(config.base, sources)


def _base_fault(base: str, sources: Mapping[str, Source]) -> str:
    found = sources.get(base)
    if found and (found.folder.versions or found.fault) and found.config.base is None:
        return ""
    own = [name for name, source in sources.items() if source.folder.versions]
    close = get_close_matches(base, own, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"models with a graph are {', '.join(own) or 'none'}"
    return f"its base {base!r} is no model with a graph of its own; {hint}"
