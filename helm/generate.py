"""Writes the chart's schema and the table of its README from values.yaml and the server's own settings.

Run it after changing either: python helm/generate.py. A test compares what it would write with what is committed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tidemill.serving.config import ServerConfig

CHART = Path(__file__).parent / "tidemill"
MARKS = ("<!-- values -->", "<!-- end of values -->")

# What the whole release has once; everything else may differ between deployments.
OF_THE_RELEASE = {
    *("deployments", "nameOverride", "fullnameOverride", "commonLabels", "commonAnnotations"),
    *("serviceAccount", "metrics", "kserve", "extraObjects"),
}
OF_THE_CHART = {
    *("host", "http_port", "grpc_port", "drain_window_seconds", "drain_limit_seconds"),
    *("keys_file", "tls_certificate", "tls_key", "tls_client_ca"),
}

_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
_NAMES = {"type": "array", "items": {"type": "string", "minLength": 1}}
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_POSITIVE = {"type": "integer", "minimum": 1}
_PULL = {"enum": ["Always", "IfNotPresent", "Never"]}
_SIZE = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"}
_LABEL = "^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$"

# Where the default's own type says too little.
NARROWER: Mapping[str, Mapping[str, Any]] = {
    "commonLabels": _STRINGS,
    "commonAnnotations": _STRINGS,
    "podLabels": _STRINGS,
    "podAnnotations": _STRINGS,
    "nodeSelector": _STRINGS,
    "metrics.labels": _STRINGS,
    "service.annotations": _STRINGS,
    "ingress.annotations": _STRINGS,
    "serviceAccount.annotations": _STRINGS,
    "image.pullPolicy": _PULL,
    "models.image.pullPolicy": _PULL,
    "image.repository": {"type": "string", "minLength": 1},
    "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "image.pullSecrets": _NAMES,
    "repositories": _NAMES,
    "extraArgs": _NAMES,
    "models.fetch": {"type": "string", "pattern": "^((s3|gs|az)://.+)?$"},
    "ingress.hosts": _NAMES,
    "gateway.hostnames": _NAMES,
    "models.source": {"enum": ["claim", "fetch", "image", "none"]},
    "models.claim.size": _SIZE,
    "models.claim.accessModes": {
        "type": "array",
        "minItems": 1,
        "items": {"enum": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]},
    },
    "models.subPath": {"type": "string", "pattern": r"^([^/.][^/]*(/[^/.][^/]*)*)?$"},
    "cache.sizeLimit": _SIZE,
    "sharedMemory": {"type": "string", "pattern": r"^([0-9]+(Ki|Mi|Gi)?)?$"},
    "strategy": {"enum": ["RollingUpdate", "Recreate"]},
    "probes.type": {"enum": ["http", "exec"]},
    "probes.startup.budgetSeconds": _POSITIVE,
    "service.type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    "service.httpPort": _PORT,
    "service.grpcPort": _PORT,
    "autoscaling.minReplicas": _POSITIVE,
    "autoscaling.maxReplicas": _POSITIVE,
    "keda.maxReplicas": _POSITIVE,
    "keda.queueSeconds": {"type": "number", "minimum": 0},
    "keda.serverAddress": {"type": "string", "pattern": "^(https?://.+)?$"},
    "podDisruptionBudget.maxUnavailable": {"oneOf": [_POSITIVE, {"type": "string", "pattern": "^[1-9][0-9]?%$"}]},
    "metrics.interval": {"type": "string", "pattern": "^[0-9]+(ms|s|m)$"},
    "resources": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            kind: {"type": "object", "additionalProperties": {"oneOf": [_SIZE, {"type": "number", "minimum": 0}]}}
            for kind in ("requests", "limits")
        }
        | {"claims": _OBJECTS},
    },
    "podSecurityContext": {"type": "object"},
    "env": {
        "type": "object",
        "additionalProperties": False,
        "patternProperties": {
            "^[A-Za-z_][A-Za-z0-9_]*$": {
                "oneOf": [
                    {"type": ["string", "number", "boolean"]},
                    {"type": "object", "required": ["valueFrom"], "additionalProperties": False}
                    | {"properties": {"valueFrom": {"type": "object"}}},
                ]
            }
        },
    },
    "extraObjects": {"type": "array", "items": {"type": ["object", "string"]}},
}


def schema(values: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of the values: types from the defaults, `server` from the server's own settings."""
    properties = {name: _type(value, name) for name, value in values.items()}
    properties["server"] = _server_settings()
    own = {name: property_ for name, property_ in properties.items() if name not in OF_THE_RELEASE}
    properties["deployments"] = {
        "type": "object",
        "additionalProperties": False,
        "patternProperties": {_LABEL: {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/deployment"}]}},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Values of the tidemill chart",
        "type": "object",
        "additionalProperties": False,
        # `global` is what a parent chart hands to all of its parts.
        "properties": properties | {"global": {"type": "object"}},
        "$defs": {"deployment": {"type": "object", "additionalProperties": False, "properties": own}},
    }


def table(text: str) -> str:
    """The README's table: every value with its default and its comment."""
    rows = [f"| `{path}` | `{default}` | {comment} |" for path, default, comment in _described(text)]
    return "\n".join(["| value | default | what it is |", "|---|---|---|", *rows])


def _type(value: Any, path: str) -> dict[str, Any]:
    if path in NARROWER:
        return dict(NARROWER[path])
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int):
        return {"type": "integer", "minimum": 0}
    if isinstance(value, str):
        return {"type": "string"}
    if isinstance(value, list):
        return dict(_OBJECTS)
    if not value:
        return {"type": "object"}
    properties = {name: _type(item, f"{path}.{name}") for name, item in value.items()}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _server_settings() -> dict[str, Any]:
    found = ServerConfig.model_json_schema()
    properties = {
        name: {key: fact for key, fact in property_.items() if key not in ("title", "default")}
        for name, property_ in found["properties"].items()
        if name not in OF_THE_CHART
    }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _described(text: str) -> Iterator[tuple[str, str, str]]:
    """Path, default and comment of every value that has a comment; nested keys are two spaces deeper."""
    path: list[str] = []
    comment = ""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        stripped = line.strip()
        if stripped.startswith("# "):
            comment = stripped[5:] if stripped.startswith("# -- ") else f"{comment} {stripped[2:]}" if comment else ""
            continue
        if match := re.match(r"^( *)([A-Za-z]+):(.*)$", line):
            path = [*path[: len(match[1]) // 2], match[2]]
            if comment:
                yield ".".join(path), match[3].strip() or _nested(lines[number + 1 :]), comment.replace("|", "\\|")
        comment = ""


def _nested(following: list[str]) -> str:
    depth = len(following[0]) - len(following[0].lstrip())
    block = []
    for line in following:
        if len(line) - len(line.lstrip()) < depth:
            break
        block.append(line)
    return json.dumps(yaml.safe_load("\n".join(block)))


def rendered() -> dict[Path, str]:
    """Every generated file with the text that it should have."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    readme = (CHART / "README.md").read_text(encoding="utf-8")
    before, rest = readme.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    return {
        CHART / "values.schema.json": json.dumps(schema(yaml.safe_load(text)), indent=1) + "\n",
        CHART / "README.md": f"{before}{MARKS[0]}\n{table(text)}\n{MARKS[1]}{after}",
    }


if __name__ == "__main__":
    for path, content in rendered().items():
        path.write_text(content, encoding="utf-8")
