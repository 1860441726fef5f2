"""Objects of kinds that the cluster learns from others: held against the part of their schemas that the chart uses.

The fields are those of Gateway API v1, KEDA v1alpha1, the Prometheus operator's v1 and KServe's v1alpha1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from chart import EXAMPLES, Object, example, render

TEXT = {"type": "string", "minLength": 1}
COUNT = {"type": "integer", "minimum": 0}
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required.split(),
        "properties": properties,
    }


def _list(item: Any) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": item}


SELECTOR = _object("matchLabels", matchLabels=LABELS)
ENDPOINT = _object(
    "port",
    port=TEXT,
    path=TEXT,
    interval={"type": "string", "pattern": "^[0-9]+(ms|s|m)$"},
    scheme={"enum": ["http", "https"]},
    tlsConfig=_object("insecureSkipVerify", insecureSkipVerify={"type": "boolean"}),
    authorization=_object("credentials", credentials=_object("name key", name=TEXT, key=TEXT)),
)
PARENT = _object("name", name=TEXT, namespace=TEXT, sectionName=TEXT, kind=TEXT, group=TEXT, port=COUNT)
BACKENDS = _list(_object("name port", name=TEXT, port={"type": "integer", "minimum": 1, "maximum": 65535}))
HTTP_MATCH = _object("path", path=_object("type value", type={"enum": ["Exact", "PathPrefix"]}, value=TEXT))
GRPC_MATCH = _object("method", method=_object("service", service=TEXT, method=TEXT, type={"enum": ["Exact"]}))


def _route(match: Any) -> dict[str, Any]:
    rules = _list(_object("backendRefs", matches=_list(match), backendRefs=BACKENDS))
    return _object("parentRefs rules", parentRefs=_list(PARENT), hostnames=_list(TEXT), rules=rules)


TRIGGER = _object(
    "type metadata",
    type={"const": "prometheus"},
    name=TEXT,
    metricType={"enum": ["AverageValue", "Value"]},
    metadata=_object("serverAddress query threshold", serverAddress=TEXT, query=TEXT, threshold=TEXT),
)
RULE = _object("alert expr labels annotations", alert=TEXT, expr=TEXT, labels=LABELS, annotations=LABELS) | {}
RULE["properties"]["for"] = TEXT

SPECS = {
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): _route(HTTP_MATCH),
    ("gateway.networking.k8s.io/v1", "GRPCRoute"): _route(GRPC_MATCH),
    ("keda.sh/v1alpha1", "ScaledObject"): _object(
        "scaleTargetRef triggers",
        scaleTargetRef=_object("name", name=TEXT),
        minReplicaCount=COUNT,
        maxReplicaCount=COUNT,
        cooldownPeriod=COUNT,
        fallback=_object("failureThreshold replicas", failureThreshold=COUNT, replicas=COUNT),
        triggers=_list(TRIGGER),
    ),
    ("monitoring.coreos.com/v1", "PodMonitor"): _object(
        "selector podMetricsEndpoints", selector=SELECTOR, podMetricsEndpoints=_list(ENDPOINT)
    ),
    ("monitoring.coreos.com/v1", "ServiceMonitor"): _object(
        "selector endpoints", selector=SELECTOR, endpoints=_list(ENDPOINT)
    ),
    ("monitoring.coreos.com/v1", "PrometheusRule"): _object(
        "groups", groups=_list(_object("name rules", name=TEXT, rules=_list(RULE)))
    ),
    ("serving.kserve.io/v1alpha1", "ClusterServingRuntime"): _object(
        "supportedModelFormats containers",
        annotations=LABELS,
        supportedModelFormats=_list(
            _object("name", name=TEXT, version=TEXT, autoSelect={"type": "boolean"}, priority=COUNT)
        ),
        protocolVersions=_list({"enum": ["v1", "v2", "grpc-v2"]}),
        multiModel={"type": "boolean"},
        containers={"type": "array", "minItems": 1, "maxItems": 1},
        volumes={"type": "array"},
    ),
}


def _custom(objects: tuple[Object, ...]) -> list[Object]:
    return [found for found in objects if (found["apiVersion"], found["kind"]) in SPECS]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_their_specs_hold_known_fields_only(path: Path) -> None:
    for found in _custom(render(example(path)).objects):
        jsonschema.validate(found["spec"], SPECS[found["apiVersion"], found["kind"]])


def test_every_kind_is_rendered_by_some_example() -> None:
    seen = {(f["apiVersion"], f["kind"]) for path in EXAMPLES for f in _custom(render(example(path)).objects)}
    assert seen == set(SPECS)


def test_the_kserve_runtime_is_what_kserve_looks_for() -> None:
    (runtime,) = render({"kserve": {"enabled": True}}).of_kind("ClusterServingRuntime")
    (container,) = runtime["spec"]["containers"]
    assert container["name"] == "kserve-container"
    assert "/mnt/models" in " ".join(container["args"])
    assert "{{.Name}}" in " ".join(container["args"])
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {"http1": 8080, "h2c": 9000}
    assert {"v2", "grpc-v2"} == set(runtime["spec"]["protocolVersions"])
