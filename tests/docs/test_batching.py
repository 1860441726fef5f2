"""The page about batching names every setting with its default."""

from __future__ import annotations

import re
from pathlib import Path

from tidemill.bundle.config import BatchingConfig, RaggedConfig

PAGE = Path(__file__).parents[2] / "docs" / "batching.md"


def test_every_setting_is_explained() -> None:
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*?) \|", PAGE.read_text("utf-8"), re.MULTILINE))
    fields = BatchingConfig.model_fields | {f"ragged.{name}": kind for name, kind in RaggedConfig.model_fields.items()}
    del fields["ragged"]
    assert fields.keys() <= rows.keys()
    told = {"0": 0, "1": 1, "1024": 1024, "0.15": 0.15, "[]": (), "{}": {}, "false": False, "true": True}
    for name, field in fields.items():
        if rows[name] in told:
            assert told[rows[name]] == field.default, name
