"""Every observed case of max 26.7 has a test, or a reason why it can have none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]
_CASES = _TESTS / "data" / "conformance" / "max-module.json"

INEXPRESSIBLE = {
    "compile.time_cold_mlp": "a time on another compiler",
    "compile.time_warm_mlp": "a time on another compiler",
    "copy.shallow": "either way is allowed",
}


def test_every_case_is_accounted_for(capsys: pytest.CaptureFixture[str]) -> None:
    # Cases of ONNX and ONNX Runtime are facts about those, not about an authoring API.
    cases = {case["case"]: case for case in json.loads(_CASES.read_text())}
    cases = {name: case for name, case in cases.items() if not name.startswith(("ort.", "onnx."))}
    text = "".join(path.read_text() for path in _TESTS.rglob("test_*.py") if path.name != "test_coverage.py")
    tested = {name for name in cases if name in text}
    matching = {name for name in tested if cases[name].get("advice", "").startswith("match")}
    with capsys.disabled():
        print(f"\n{len(tested)} of {len(cases)} observed cases have a test, {len(matching)} of them as observed")
    assert sorted(cases.keys() - tested) == sorted(INEXPRESSIBLE)
