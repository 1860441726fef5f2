"""The Helm chart rendered by Helm itself, and what its objects say of one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python
import yaml

CHART = Path(__file__).parents[2] / "helm" / "tidemill"
EXAMPLES = sorted((CHART / "values-examples").glob("*.yaml"))
NAMESPACE = "ml"

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Release:
    """What one set of values renders to."""

    objects: tuple[Object, ...]
    notes: str

    def of_kind(self, kind: str) -> list[Object]:
        return [found for found in self.objects if found["kind"] == kind]

    def one(self, kind: str) -> Object:
        (found,) = self.of_kind(kind)
        return found


def render(values: Mapping[str, Any], name: str = "demo", *, upgrade: bool = False) -> Release:
    with helm_python.Chart.load(str(CHART)) as chart:
        texts = chart.render(dict(values), name=name, namespace=NAMESPACE, is_upgrade=upgrade)
    notes = next(text for path, text in texts.items() if path.endswith("NOTES.txt"))
    manifests = [text for path, text in sorted(texts.items()) if path.endswith(".yaml")]
    objects = [found for text in manifests for found in yaml.safe_load_all(text) if found]
    return Release(tuple(objects), notes)


def example(path: Path) -> Mapping[str, Any]:
    values: Mapping[str, Any] = yaml.safe_load(path.read_text())
    return values


def pod_specs(release: Release) -> Iterator[tuple[str, Object]]:
    """Every pod that the release makes, by the name of its owner."""
    for found in release.objects:
        if found["kind"] == "Deployment":
            yield found["metadata"]["name"], found["spec"]["template"]["spec"]
        elif found["kind"] == "Pod":
            yield found["metadata"]["name"], found["spec"]


def containers(spec: Object) -> list[Object]:
    return [*spec.get("initContainers", []), *spec["containers"]]


def server_container(deployment: Object) -> Object:
    (found,) = [c for c in deployment["spec"]["template"]["spec"]["containers"] if c["name"] == "server"]
    return found
