"""docs/operations.md lists every series and label that /metrics shows, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tidemill.serving.metrics import Load, Metrics

_PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
_ROW = re.compile(r"^\| (?P<names>`(?:tidemill|nv)_[a-z_`, ]+`) \| (?P<labels>[a-z, ]*)\|", re.MULTILINE)
_OWN = frozenset(("le",))
"""Every histogram has it."""


def _documented() -> Iterator[tuple[str, frozenset[str]]]:
    for row in _ROW.finditer(_PAGE.read_text(encoding="utf-8")):
        labels = frozenset(filter(None, row["labels"].strip().split(", ")))
        yield from ((name, labels) for name in re.findall(r"`([a-z_]+)`", row["names"]))


def _shown() -> dict[str, frozenset[str]]:
    metrics = Metrics()
    metrics.model("mlp", "1")
    metrics.set_state("mlp", "1", "READY", ["READY", "FAILED"])
    metrics.watch_load("mlp", "1", Load(lambda: 0, lambda: 0, lambda: 0.0))
    metrics.loaded("mlp", "1", 0.5)
    metrics.placed("mlp", "1", {"CPU": 3})
    metrics.generation.observers("mlp", "1")
    families = text_string_to_metric_families(metrics.expose().decode())
    return {
        family.name + "_total" * (family.type == "counter" and not family.name.startswith("nv_")): frozenset(
            label for sample in family.samples for label in sample.labels
        )
        - _OWN
        for family in families
    }


def test_every_series_is_documented_with_its_labels() -> None:
    documented, shown = dict(_documented()), _shown()
    plain = documented.pop("nv_inference_request_failure")
    assert shown.pop("nv_inference_request_failure") == plain
    triton = {name: shown.pop(name) for name in list(shown) if name.startswith("nv_")}
    assert set(triton.values()) == {frozenset(("model", "version"))}
    assert documented == shown
