"""The observed behaviour of max 26.7, by case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

_FILE = Path(__file__).parents[1] / "data" / "conformance" / "max-module.json"


@pytest.fixture(scope="session")
def observed() -> dict[str, dict[str, Any]]:
    """Every case by id; texts name tidemill's rooms instead of max's."""
    text = _FILE.read_text()
    for room in ("driver", "graph", "engine", "nn"):
        text = text.replace(f"max.{room}", f"tidemill.{room}")
    return {case["case"]: case for case in json.loads(text)}
