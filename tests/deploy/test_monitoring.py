"""Alerts, dashboard and scaling: expressions that parse, over series that the server really has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml
from chart import CHART, render
from prometheus_client.parser import text_string_to_metric_families

from tidemill.serving.metrics import Load, Metrics

RULES = CHART / "rules" / "tidemill.yaml"
CASES = CHART / "rules" / "tests" / "tidemill.yaml"
DASHBOARD = CHART / "dashboards" / "tidemill.json"
ELSEWHERE = {"kube_pod_container_status_restarts_total"}
# What Prometheus adds when it scrapes a pod.
ADDED = {"namespace", "pod", "container", "job", "instance"}

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian's package prometheus has it)"
)


def _rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def _expressions() -> Iterator[tuple[str, str]]:
    for rule in _rules():
        yield rule["alert"], rule["expr"]
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m").replace("$", "")
    keda = {"enabled": True, "serverAddress": "http://p", "queueSeconds": 1}
    for trigger in render({"keda": keda}).one("ScaledObject")["spec"]["triggers"]:
        yield trigger["name"], trigger["metadata"]["query"]


EXPRESSIONS = list(_expressions())


def _exposed() -> dict[str, set[str]]:
    """The labels of every series that a server with one model exposes."""
    metrics = Metrics()
    metrics.model("mlp", "1")
    metrics.set_state("mlp", "1", "READY", ["READY", "FAILED"])
    metrics.watch_load("mlp", "1", Load(lambda: 0, lambda: 0, lambda: 0.0))
    families = text_string_to_metric_families(metrics.expose().decode())
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS, ids=[name for name, _ in EXPRESSIONS])
def test_every_expression_parses_and_asks_for_series_that_exist(name: str, expression: str) -> None:
    exposed = _exposed()
    tree = str(promql_parser.parse(expression))
    asked = set(re.findall(r"\b(?:tidemill|kube|nv)_\w+", tree)) - ELSEWHERE
    assert asked or "kube_" in tree
    assert asked <= set(exposed), f"{name} asks for series that no server has"
    labels = set(re.findall(r"(\w+)(?:=|=~|!=|!~)\"", tree))
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", tree) for label in group.split(",")}
    known = set().union(*(exposed[name] for name in asked)) | ADDED
    assert labels | grouped <= known


def test_every_alert_says_what_happened_and_has_a_test() -> None:
    tested = {
        case["alertname"]
        for test in yaml.safe_load(CASES.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    for rule in _rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["alert"] in tested


@needs_promtool
def test_promtool_takes_the_rules_and_they_fire_when_they_should() -> None:
    for arguments in (["check", "rules", str(RULES)], ["test", "rules", str(CASES)]):
        done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_b40_the_scaling_signal_is_the_busy_models_own_and_falls_to_nothing(tmp_path: Any) -> None:
    """One of three models is busy, then none: the mean over idle models would say a third, a counter would stay up."""
    keda = {"enabled": True, "serverAddress": "http://p", "queueSeconds": 1, "inflight": 4}
    inflight, wait = (
        trigger["metadata"]["query"] for trigger in render({"keda": keda}).one("ScaledObject")["spec"]["triggers"]
    )
    pod = 'namespace="ml", pod="demo-tidemill-6d4cf56db6-x7x2p"'

    def series(kind: str, model: str, values: str) -> dict[str, str]:
        return {"series": f'tidemill_queue_duration_seconds_{kind}{{{pod}, model="{model}"}}', "values": values}

    busy = [series("sum", "busy", "0+120x20 2400x40"), series("count", "busy", "0+60x20 1200x40")]
    idle = [series(kind, model, "5x60") for model in ("idle", "other") for kind in ("sum", "count")]
    running = [{"series": f"tidemill_inflight_requests{{{pod}}}", "values": "6x20 0x40"}]

    def expect(query: str, minute: int, value: float) -> dict[str, Any]:
        return {"expr": query, "eval_time": f"{minute}m", "exp_samples": [{"labels": "{}", "value": value}]}

    checks = [expect(wait, 9, 2.0), expect(wait, 25, 0.0), expect(inflight, 9, 6.0), expect(inflight, 25, 0.0)]
    test = {"interval": "30s", "input_series": [*busy, *idle, *running], "promql_expr_test": checks}
    (tmp_path / "scaling.yaml").write_text(yaml.safe_dump({"evaluation_interval": "30s", "tests": [test]}))
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "scaling.yaml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
