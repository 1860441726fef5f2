"""The chart, rendered by Helm: every object valid for the cluster, hardened, and true to the others."""

from __future__ import annotations

import itertools
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import pytest
import yaml
from chart import CHART, EXAMPLES, Object, Release, containers, example, pod_specs, render, server_container

from tidemill.serving.config import load_server_config

VERSIONS = ("1.27", "1.31", "1.37")
# Volumes of the kind `image` came with 1.33 (beta).
NEEDS = {"oci-image": "1.37"}
CUSTOM = {
    *("ScaledObject", "HTTPRoute", "GRPCRoute", "PodMonitor", "ServiceMonitor", "PrometheusRule"),
    "ClusterServingRuntime",
}


def name_of(path: Path) -> str:
    return path.stem


every_example = pytest.mark.parametrize("path", EXAMPLES, ids=name_of)


@every_example
@pytest.mark.parametrize("version", [f"{version}.0" for version in VERSIONS])
def test_lint_finds_nothing(path: Path, version: str) -> None:
    found = helm_python.lint(str(CHART), dict(example(path)), strict=True, kube_version=version)
    assert not found["errors"]
    assert [message for message in found["messages"] if message["severity"] > 1] == []


@every_example
def test_the_cluster_would_take_every_object(path: Path) -> None:
    for found, version in itertools.product(render(example(path)).objects, VERSIONS):
        if found["kind"] in CUSTOM or version < NEEDS.get(path.stem, ""):
            continue
        kubernetes_validate.validate(found, version, strict=True)


@every_example
def test_pods_pass_pod_securitys_restricted(path: Path) -> None:
    for _, spec in pod_specs(render(example(path))):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
        assert not any("hostPath" in volume for volume in spec.get("volumes", []))
        for container in containers(spec):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "privileged" not in context
            assert {"cpu", "memory"} <= set(container["resources"]["limits"])
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])


@every_example
def test_nothing_is_named_twice_and_everything_mounted_exists(path: Path) -> None:
    release = render(example(path))
    identities = Counter((found["kind"], found["metadata"]["name"]) for found in release.objects)
    assert max(identities.values()) == 1
    assert all(len(found["metadata"]["name"]) <= 63 for found in release.objects)
    assert all("namespace" not in found["metadata"] for found in release.objects)
    for _, spec in pod_specs(release):
        volumes = [volume["name"] for volume in spec.get("volumes", [])]
        assert len(volumes) == len(set(volumes))
        for container in containers(spec):
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= set(volumes)
            for key in ("env", "ports"):
                names = [entry["name"] for entry in container.get(key, [])]
                assert len(names) == len(set(names)), f"the cluster refuses a {key} that is there twice"


@every_example
def test_selectors_find_their_own_pods_and_no_others(path: Path) -> None:
    release = render(example(path))
    pods = {d["metadata"]["name"]: d["spec"]["template"]["metadata"]["labels"] for d in release.of_kind("Deployment")}
    for deployment in release.of_kind("Deployment"):
        assert _selected(deployment["spec"]["selector"]["matchLabels"], pods) == [deployment["metadata"]["name"]]
    for kind in ("PodDisruptionBudget", "NetworkPolicy"):
        for found in release.of_kind(kind):
            selector = found["spec"].get("selector") or found["spec"]["podSelector"]
            assert _selected(selector["matchLabels"], pods) == [found["metadata"]["name"]]
    for service in release.of_kind("Service"):
        (owner,) = _selected(service["spec"]["selector"], pods)
        assert service["metadata"]["name"] in (owner, f"{owner}-headless")
        (deployment,) = [d for d in release.of_kind("Deployment") if d["metadata"]["name"] == owner]
        ports = {port["name"] for port in server_container(deployment)["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
        assert all(len(port["name"]) <= 15 for port in service["spec"]["ports"])


@every_example
def test_the_server_understands_its_settings(path: Path, tmp_path: Path) -> None:
    release = render(example(path))
    for deployment in release.of_kind("Deployment"):
        (tmp_path / "server.yaml").write_text(_settings(release, deployment))
        config = load_server_config(tmp_path / "server.yaml")
        ports = {port["name"]: port["containerPort"] for port in server_container(deployment)["ports"]}
        assert (config.http_port, config.grpc_port) == (ports["http"], ports["grpc"])
        assert config.log_format == "json"


@every_example
def test_an_upgrade_renders_what_an_install_did(path: Path) -> None:
    assert render(example(path)).objects == render(example(path), upgrade=True).objects


@every_example
def test_b38_the_cluster_waits_longer_than_the_server_drains(path: Path) -> None:
    release = render(example(path))
    for deployment in release.of_kind("Deployment"):
        server = yaml.safe_load(_settings(release, deployment))
        hook = server_container(deployment).get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [0])
        drain = float(hook[-1]) + server["drain_window_seconds"] + server["drain_limit_seconds"]
        spec = deployment["spec"]
        assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > drain
        if spec["strategy"]["type"] == "RollingUpdate":
            assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


@every_example
def test_b40_probes_ask_for_what_they_stand_for(path: Path) -> None:
    for deployment in render(example(path)).of_kind("Deployment"):
        container = server_container(deployment)
        assert _question(container["startupProbe"]) == "ready"
        assert _question(container["readinessProbe"]) == "ready"
        assert _question(container["livenessProbe"]) == "live"
        assert "initialDelaySeconds" not in container["startupProbe"]
        startup = container["startupProbe"]
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 600
        assert deployment["spec"]["progressDeadlineSeconds"] > 600


@every_example
def test_b40_replicas_have_one_owner(path: Path) -> None:
    release = render(example(path))
    scalers = release.of_kind("HorizontalPodAutoscaler") + release.of_kind("ScaledObject")
    scaled = [scaler["spec"]["scaleTargetRef"]["name"] for scaler in scalers]
    assert len(scaled) == len(set(scaled))
    for deployment in release.of_kind("Deployment"):
        assert ("replicas" in deployment["spec"]) == (deployment["metadata"]["name"] not in scaled)


def test_a_long_release_name_stays_within_the_clusters_limits() -> None:
    release = render({"deployments": {"a" * 20: {}, "b" * 20: {}}}, name="r" * 53)
    for found in release.objects:
        assert len(found["metadata"]["name"]) <= 63
        assert all(len(value) <= 63 for value in found["metadata"]["labels"].values())
    assert len({f["metadata"]["name"] for f in release.of_kind("Deployment")}) == 2


def test_a_variable_of_the_user_replaces_ours() -> None:
    (deployment,) = render({"env": {"HOME": "/elsewhere", "MORE": 3}}).of_kind("Deployment")
    env = {entry["name"]: entry["value"] for entry in server_container(deployment)["env"]}
    assert env["HOME"] == "/elsewhere"
    assert env["MORE"] == "3"


def test_large_numbers_stay_numbers_and_names_stay_text() -> None:
    values = {"env": {"A": 1_000_000, "B": 1.5}, "tls": {"existingSecret": "0123"}, "priorityClassName": "123"}
    deployment = render(values).one("Deployment")
    env = {entry["name"]: entry["value"] for entry in server_container(deployment)["env"]}
    assert (env["A"], env["B"]) == ("1000000", "1.5")
    spec = deployment["spec"]["template"]["spec"]
    assert spec["priorityClassName"] == "123"
    assert {"secretName": "0123", "defaultMode": 0o440} in [volume.get("secret") for volume in spec["volumes"]]


def test_who_scrapes_an_encrypted_server_is_told_so() -> None:
    metrics = {"podMonitor": True, "keySecret": "scraper"}
    release = render({"tls": {"existingSecret": "tls"}, "metrics": metrics})
    (endpoint,) = release.one("PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["authorization"]["credentials"] == {"name": "scraper", "key": "key"}
    kinds = {port["appProtocol"] for service in release.of_kind("Service") for port in service["spec"]["ports"]}
    assert kinds == {"https"}


def test_a_deployment_changes_only_what_it_names() -> None:
    release = render({"replicas": 2, "deployments": {"a": {"replicas": 5}, "b": None}})
    assert {d["metadata"]["name"]: d["spec"]["replicas"] for d in release.of_kind("Deployment")} == {
        "demo-tidemill-a": 5,
        "demo-tidemill-b": 2,
    }


def test_changed_settings_replace_the_pods() -> None:
    before, after = (render({"server": {"max_inflight": n}}).one("Deployment") for n in (10, 20))
    assert _annotations(before)["checksum/settings"] != _annotations(after)["checksum/settings"]


def test_one_gpu_takes_image_resource_and_toleration() -> None:
    deployment = render({"gpu": {"count": 1}}).one("Deployment")
    assert server_container(deployment)["image"].endswith("-gpu")
    assert server_container(deployment)["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert deployment["spec"]["template"]["spec"]["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_the_notes_name_every_deployment() -> None:
    notes = render({"deployments": {"a": {}, "b": {}}}).notes
    assert "deployment/demo-tidemill-a" in notes
    assert "deployment/demo-tidemill-b" in notes


def test_schema_and_table_are_what_the_generator_writes() -> None:
    generated = runpy.run_path(str(CHART.parent / "generate.py"))["rendered"]()
    for path, content in generated.items():
        assert path.read_text(encoding="utf-8") == content, f"{path.name} is old: run python helm/generate.py"


def test_the_readmes_examples_render() -> None:
    blocks = (CHART / "README.md").read_text().split("```yaml\n")[1:]
    assert len(blocks) == 3
    for block in blocks:
        assert render(yaml.safe_load(block.split("```")[0])).of_kind("Deployment")


def test_there_are_enough_examples() -> None:
    assert len(EXAMPLES) >= 12


def _selected(selector: Object, pods: dict[str, Any]) -> list[str]:
    return [name for name, labels in pods.items() if selector.items() <= labels.items()]


def _settings(release: Release, deployment: Object) -> str:
    name = deployment["metadata"]["name"]
    (found,) = [config for config in release.of_kind("ConfigMap") if config["metadata"]["name"] == name]
    return str(found["data"]["server.yaml"])


def _question(probe: Object) -> str:
    path = probe["httpGet"]["path"] if "httpGet" in probe else probe["exec"]["command"][2]
    return str(path).rsplit("/", 1)[-1]


def _annotations(deployment: Object) -> Any:
    return deployment["spec"]["template"]["metadata"]["annotations"]
