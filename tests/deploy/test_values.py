"""Values that are wrong: each is refused, and the message says where."""

from __future__ import annotations

from typing import Any

import helm_python
import pytest
import yaml
from chart import CHART, render

# A path, a wrong value for it, and what the message names.
WRONG: tuple[tuple[str, Any], ...] = (
    ("replicaCount", 2),
    ("replicas", "2"),
    ("replicas", -1),
    ("replicas", 1.5),
    ("strategy", "Rolling"),
    ("minReadySeconds", "5s"),
    ("revisionHistoryLimit", -1),
    ("image.repository", ""),
    ("image.tag", 1.2),
    ("image.digest", "sha256:abc"),
    ("image.pullPolicy", "Sometimes"),
    ("image.pullSecrets", "registry"),
    ("image.pullSecrets", [""]),
    ("image.name", "tidemill"),
    ("server.host", "0.0.0.0"),
    ("server.keys_file", "/keys"),
    ("tls.secret", "a"),
    ("tls.clientCertificates", "yes"),
    ("apiKeys.existingSecret", 1),
    ("server.http_port", 9000),
    ("server.max_inflight", 0),
    ("server.max_inflight", "many"),
    ("server.max_inflights", 5),
    ("server.log_level", "loud"),
    ("server.model_control", "sometimes"),
    ("server.poll_seconds", 0),
    ("server.strict_readiness", "yes"),
    ("repositories", "s3://models"),
    ("repositories", [1]),
    ("models.source", "s3"),
    ("models.claim.size", "ten"),
    ("models.claim.size", 10),
    ("models.claim.accessModes", []),
    ("models.claim.accessModes", ["Whenever"]),
    ("models.claim.name", "models"),
    ("models.fetch", ["s3://models"]),
    ("models.fetch", "models/production"),
    ("models.image.pullPolicy", "Sometimes"),
    ("models.subPath", "../other"),
    ("models.subPath", "/models"),
    ("cache.sizeLimit", "plenty"),
    ("cache.existingClaim", True),
    ("drain.windowSeconds", "10s"),
    ("drain.limitSeconds", -1),
    ("drain.seconds", 3),
    ("probes.type", "grpc-web"),
    ("probes.startup.budgetSeconds", 0),
    ("probes.startup.budget", 10),
    ("probes.readiness.periodSeconds", "5"),
    ("probes.liveness.path", "/v2/health/ready"),
    ("resources.limit", {"cpu": "1"}),
    ("resources.limits.cpu", "one"),
    ("resources.limits.memory", "2 GB"),
    ("gpu.count", "1"),
    ("gpu.count", -1),
    ("gpu.tolerate", "yes"),
    ("service.type", "Public"),
    ("service.httpPort", 0),
    ("service.grpcPort", 70000),
    ("service.annotations", {"a": 1}),
    ("autoscaling.enabled", "true"),
    ("autoscaling.minReplicas", 0),
    ("autoscaling.cpu", "70%"),
    ("keda.serverAddress", "prometheus:9090"),
    ("keda.queueSeconds", "1s"),
    ("podDisruptionBudget.maxUnavailable", "all"),
    ("podDisruptionBudget.maxUnavailable", 0),
    ("tolerations", {"key": "a"}),
    ("nodeSelector", {"a": 1}),
    ("ingress.hosts", [{"host": "a"}]),
    ("gateway.parentRefs", ["public"]),
    ("networkPolicy.from", ["everybody"]),
    ("metrics.interval", "often"),
    ("metrics.podMonitor", "on"),
    ("sharedMemory", "lots"),
    ("env", {"1A": "x"}),
    ("env", {"A": {"value": "x"}}),
    ("env", {"A": ["x"]}),
    ("env", [{"name": "A", "value": "x"}]),
    ("extraVolumes", ["a"]),
    ("deployments", ["a"]),
    ("deployments", {"Upper": {}}),
    ("deployments", {"x" * 30: {}}),
    ("deployments", {"a": {"replicaCount": 1}}),
    ("deployments", {"a": {"replicas": "1"}}),
    ("deployments", {"a": {"kserve": {"enabled": True}}}),
)

# Values that are each right and do not go together.
CLASHES: tuple[tuple[str, str], ...] = (
    ("drain: {terminationGracePeriodSeconds: 44}", "must be at least 45"),
    ("drain: {preStopSeconds: 10}", "must be at least 55"),
    ("deployments: {a: {drain: {limitSeconds: 100}}}", "deployments.a: drain.terminationGracePeriodSeconds"),
    ("{autoscaling: {enabled: true}, keda: {enabled: true, serverAddress: 'http://p'}}", "exclude each other"),
    ("autoscaling: {enabled: true, cpu: 0}", "autoscaling.cpu or autoscaling.queueDepth"),
    ("keda: {enabled: true}", "keda.serverAddress is needed"),
    ("keda: {enabled: true, serverAddress: 'http://p', inflight: 0}", "keda.inflight or keda.queueSeconds"),
    ("models: {source: fetch}", "models.fetch is empty"),
    ("models: {source: image}", "models.image.reference is empty"),
    ("models: {source: none}", "nothing to serve"),
    ("{tls: {clientCertificates: true}, probes: {type: exec}}", "needs tls.existingSecret"),
    ("tls: {clientCertificates: true, existingSecret: a}", "needs probes.type exec"),
)


@pytest.mark.parametrize(("path", "value"), WRONG, ids=[f"{path}={value!r}"[:60] for path, value in WRONG])
def test_the_schema_refuses(path: str, value: object) -> None:
    values: Any = value
    for key in reversed(path.split(".")):
        values = {key: values}
    with pytest.raises(helm_python.HelmError) as refused:
        render(values)
    assert path.split(".")[0] in str(refused.value)


@pytest.mark.parametrize(("values", "message"), CLASHES)
def test_what_does_not_go_together_is_refused_with_a_reason(values: str, message: str) -> None:
    with pytest.raises(helm_python.HelmError, match=message):
        render(yaml.safe_load(values))


def test_the_defaults_pass() -> None:
    with helm_python.Chart.load(str(CHART)) as chart:
        chart.validate_schema({})
