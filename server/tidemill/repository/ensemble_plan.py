"""What is wrong with an ensemble before any model is loaded; knows sources only."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from tidemill.repository.source import Source

__all__ = ["ensemble_fault"]

_OF_ENSEMBLES = {"ensemble", "labels", "max_batch_size", "pipeline", "version_policy"}


def ensemble_fault(source: Source, sources: Mapping[str, Source]) -> str:
    """Why an ensemble cannot be served, all reasons at once; "" if its members can be looked at.

    Args:
        source: The ensemble.
        sources: All models.
    """
    faults = [_unknown(name, sources) for name in source.members if name not in sources]
    if source.folder.versions:
        faults.append("an ensemble has no graph of its own; remove its version folders")
    if misplaced := source.config.model_fields_set - _OF_ENSEMBLES:
        faults.append(f"{', '.join(sorted(misplaced))} belongs to the members, not to the ensemble")
    if circle := _circle(source.name, source.name, sources, ()):
        faults.append(f"the ensembles run each other: {' -> '.join(circle)}")
    return "; ".join(faults)


def _unknown(name: str, sources: Mapping[str, Source]) -> str:
    close = get_close_matches(name, sources, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(sources))}"
    return f"its member {name!r} is no model of the repository; {hint}"


def _circle(name: str, wanted: str, sources: Mapping[str, Source], path: tuple[str, ...]) -> tuple[str, ...]:
    """The way from a model over members to the one that is wanted; () if there is none."""
    path = (*path, name)
    for member in sources[name].members if name in sources else ():
        if member == wanted:
            return (*path, member)
        if member not in path and (found := _circle(member, wanted, sources, path)):
            return found
    return ()
