"""The operators of `max.graph.ops` 26.7: each is there, or refused by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemill.graph import ops

NAMES = (Path(__file__).parents[2] / "data" / "max_ops.txt").read_text(encoding="utf-8").split()

# What MAX offers beside functions: modules of operators, and one enumeration.
OTHERS = ("InterpolationMode", "allreduce", "bundled_allreduce", "distributed_ep", "random", "reducescatter")


def is_refused(op: Callable[..., Any]) -> bool:
    return (op.__doc__ or "").startswith("Refused")


def test_every_name_is_supported_or_refused(capsys: pytest.CaptureFixture[str]) -> None:
    there = [name for name in NAMES if hasattr(ops, name)]
    refused = [name for name in there if is_refused(getattr(ops, name))]
    with capsys.disabled():
        print(
            f"\nMAX operators: {len(there) - len(refused)} of {len(NAMES)} supported, {len(refused)} refused: {refused}"
        )
    assert len(NAMES) == len(set(NAMES)) == 132
    assert sorted(set(NAMES) - set(there)) == []


def test_what_is_beside_the_functions_is_there_too() -> None:
    assert [name for name in OTHERS if not hasattr(ops, name)] == []


def test_the_facade_is_sorted_and_complete() -> None:
    assert ops.__all__ == sorted(ops.__all__)
    assert [name for name in NAMES if hasattr(ops, name) and name not in ops.__all__] == []
