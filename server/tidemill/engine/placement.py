"""Which provider executes how many of a model's nodes; reads it off a session and changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["RECORD_PLACEMENT", "Placement", "read_placement"]

RECORD_PLACEMENT = "session.record_ep_graph_assignment_info"
"""The session's setting without which ONNX Runtime does not remember."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the nodes of a loaded graph run.

    Attributes:
        nodes: Their number by the provider's full name, the most first.
    """

    nodes: Mapping[str, int]

    @property
    def total(self) -> int:
        """The number of nodes that are executed."""
        return sum(self.nodes.values())

    def left_over(self, provider: str) -> int:
        """How many nodes run elsewhere than on a provider."""
        return self.total - self.nodes.get(provider, 0)

    def __str__(self) -> str:
        return ", ".join(f"{provider} {count}" for provider, count in self.nodes.items()) or "no nodes"


def read_placement(session: Any) -> Placement:
    """The placement of an ONNX Runtime session that was set up with `RECORD_PLACEMENT`."""
    counts: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        counts[part.ep_name] += len(part.get_nodes())
    return Placement(dict(counts.most_common()))
