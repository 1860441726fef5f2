from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.repository.layout import scan
from tidemill.repository.plan import Plan, count_wanted, make_plans


def plans(root: Path, **models: tuple[str, list[int]]) -> dict[str, list[Plan]]:
    for name, (config, versions) in models.items():
        (root / name).mkdir()
        (root / name / "model.yaml").write_text(config)
        for version in versions:
            (root / name / str(version)).mkdir()
            (root / name / str(version) / "bundle.json").write_text("")
    found: dict[str, list[Plan]] = {}
    for plan in make_plans(scan([root])):
        found.setdefault(plan.name, []).append(plan)
    return found


def test_each_version_is_planned_with_its_configuration(tmp_path: Path) -> None:
    found = plans(tmp_path, m=("instances: 3", [1, 2]))
    assert [(plan.version, plan.config.instances, plan.fault) for plan in found["m"]] == [("2", 3, ""), ("1", 3, "")]


@pytest.mark.parametrize(
    ("policy", "versions", "wanted"),
    [
        ("", ["10", "2", "1"], 1),
        ("version_policy: {latest: 2}", ["10", "2", "1"], 2),
        ("version_policy: {latest: 9}", ["10", "2", "1"], 3),
        ("version_policy: {all: true}", ["10", "2", "1"], 3),
        ("version_policy: {specific: [1, 2]}", ["2", "1"], 2),
        ("version_policy: {specific: [1, 7]}", ["7", "1"], 2),
    ],
)
def test_the_policy_says_which_versions_are_wanted(
    tmp_path: Path, policy: str, versions: list[str], wanted: int
) -> None:
    found = plans(tmp_path, m=(policy, [1, 2, 10]), d=("base: m", []))
    assert [plan.version for plan in found["m"]] == [plan.version for plan in found["d"]] == versions
    assert count_wanted(found["m"]) == count_wanted(found["d"]) == wanted
    assert [plan.version for plan in found["m"] if plan.fault] == [v for v in versions if v == "7"]


def test_a_derived_model_has_the_versions_of_its_base(tmp_path: Path) -> None:
    found = plans(tmp_path, base=("", [1, 2]), derived=("base: base", []))
    assert [(plan.version, plan.base) for plan in found["derived"]] == [
        ("2", found["base"][0]),
        ("1", found["base"][1]),
    ]


@pytest.mark.parametrize(
    ("config", "versions", "part"),
    [
        ("instances: 2", [], "names no base"),
        ("base: bert", [1], "has versions of its own"),
        ("{base: bert, instances: 2}", [], "instances in model.yaml belongs into the model.yaml of its base 'bert'"),
        ("base: brt", [], "did you mean 'bert'?"),
        ("base: other", [], "models with a graph are bert"),
        ("instnces: 2", [1], "did you mean 'instances'?"),
    ],
)
def test_faults_name_what_is_wrong(tmp_path: Path, config: str, versions: list[int], part: str) -> None:
    (plan,) = plans(tmp_path, bert=("", [1]), m=(config, versions))["m"]
    assert part in plan.fault
    assert plan.bundle is None
